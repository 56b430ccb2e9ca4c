/* thread.c - makes and ends the state of a thread.
 *
 * The destructor of a pthread key notices the end of a thread. The state of a thread made by raw clone just stays.
 */
#include "record/thread.h"

#include <errno.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/process.h"
#include "base/sys.h"
#include "record/chunk.h"
#include "record/clock.h"
#include "record/pool.h"
#include "record/strings.h"

static pthread_key_t key;
static bool have_key;
static void (*at_end)(struct tfi_thread *);

static void fill_slot(struct tfi_thread *t, const char *name)
{
    struct tfi_slot *slot = tfi_slot_take();
    if (!slot) tfi_count_drop(TFI_DROP_NO_SLOT, 1);
    t->slot = slot ? slot : &t->own_slot;
    t->slot->thread = t->serial;
    t->slot->tid = t->tid;
    t->slot->calls = t->slot->stages = t->slot->collective.call = 0;
    t->slot->pthread = (uint64_t)pthread_self();
    t->slot->start = tfi_ticks();
    memcpy(t->slot->name, name, sizeof t->slot->name);
    __atomic_store_n(&t->slot->state, 1, __ATOMIC_RELEASE);
}

/* Clears the state except what its memory keeps for the next owner. Works in place: a copy of the state would need more
 * than a small stack has. */
static void clear_but_what_is_kept(struct tfi_thread *t)
{
    __typeof__(t->serial) serial = t->serial;
    __typeof__(t->all) next = t->all;
    __typeof__(t->open) open = t->open;
    __typeof__(t->names) names = t->names;
    __typeof__(t->nr_names) nr_names = t->nr_names;
    __typeof__(t->max_open) max_open = t->max_open;
    __typeof__(t->torch) torch = t->torch;
    __typeof__(t->sums) sums = t->sums;
    memset(t, 0, sizeof *t);
    t->serial = serial;
    t->all = next;
    t->open = open;
    t->names = names;
    t->nr_names = nr_names;
    t->max_open = max_open;
    t->torch = torch;
    t->sums = sums;
}

struct tfi_thread *tfi_thread_attach(void)
{
    char name[16] = {0};
    struct tfi_thread *t = tfi_state_take();
    if (!t) return NULL;
    clear_but_what_is_kept(t);
    t->tid = (uint32_t)tfi_gettid();
    syscall(SYS_prctl, PR_GET_NAME, name, 0, 0, 0);
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

/* Runs in the thread that ends. A later record of the thread starts a new state. A guard that is still set belongs to a
 * record in which the thread was cancelled, between two instructions. Nothing is left half done: a row is committed
 * whole or not at all, and locks are only held with cancellation off. */
void tfi_thread_ended(void *state)
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
    if (at_end) at_end(t);
    tfi_chunk_close(t);
    tfi_slot_free(t->slot);
    tfi_self = NULL;
    t->gen = 0;
    tfi_guard_clear(t);
    tfi_state_give(t);
    tfi_inside--;
    tfi_signals_on();
    errno = error;
}

void tfi_thread_at_end(void (*forget)(struct tfi_thread *))
{
    at_end = forget;
}

void tfi_threads_have_key(pthread_key_t made)
{
    enum { KEYS_IN_DESCRIPTOR = 32 };
    key = made;
    have_key = key < KEYS_IN_DESCRIPTOR;
}

bool tfi_lane_open(struct tfi_thread *lane, uint32_t gen)
{
    if (lane->gen == gen) return false;
    memset(lane, 0, sizeof *lane); /* no initializer: the compiler could make a copy on the stack */
    lane->gen = gen;
    lane->tid = (uint32_t)tfi_gettid();
    lane->slot = &lane->own_slot;
    return true;
}

void tfi_lane_close(struct tfi_thread *lane)
{
    if (lane->gen) tfi_chunk_close(lane);
    lane->gen = 0;
}
