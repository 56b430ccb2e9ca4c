/* select.c - decides whether a device record's call lies inside a selected stage and inside the schedule's recording.
 *
 * Stages are selected by ENABLE_PROFILER_NAMES, recording is switched by schedule.c. CUPTI's kinds stay enabled. A
 * record is left out when it is handed over, and only if its call is known and was outside every selected stage. A
 * record without a verdict is written, and the analysis decides.
 *
 * A watcher (watch.h) reports changes of a thread's stages. They are kept by thread, with the time: no stage open,
 * stages but none selected, a selected one. A thread with stages of its own is judged by them; any other call is
 * outside if no thread was in a selected stage then. The history is limited: nothing is known about older times.
 * Verdicts lie in a table of the last million calls, by correlation id; ids wrap, so the table holds their high part.
 */
#include "base/sys.h"
#include "control/config.h"
#include "control/schedule.h"
#include "cupti/client.h"
#include "record/clock.h"
#include "stage/watch.h"

#define THREADS 256u /* powers of two */
#define EDGES 256u
#define CALLS (1u << 20)

enum state { NO_STAGE, NOT_SELECTED, SELECTED };

/* Changes of state in the order of time; the last EDGES of them. */
struct history {
    uint32_t thread; /* low half of pthread_self() */
    uint32_t state;  /* latest state */
    uint64_t count;
    struct {
        uint64_t ticks;
        uint32_t state;
        uint32_t reserved;
    } edge[EDGES];
};

static struct {
    struct tfi_lock lock;
    struct history *threads; /* by hash */
    struct history *all;     /* one history; its state is the number of threads in a selected stage */
    uint32_t *calls;         /* high part of the id << 2 | verdict */
    uint32_t lost;           /* a thread found no place: others' stages are unknown */
} known;

static bool make_table(void)
{
    if (!known.calls) known.calls = tfi_map(CALLS * sizeof *known.calls);
    return known.calls != NULL;
}

bool tfi_select_init(void)
{
    if (tfi_config.select != TFI_SELECT_NAMES || known.threads) return true;
    known.all = tfi_map(sizeof *known.all);
    if (known.all && make_table()) known.threads = tfi_map(THREADS * sizeof *known.threads);
    return known.threads != NULL;
}

/* Resets the lock: one that was held when the process forked has no owner. */
static void restart(void)
{
    known.lock = (struct tfi_lock){0};
}

static struct history *history_of(uint32_t thread, bool make)
{
    uint32_t first = (thread >> 8) * 2654435761u >> 16;
    for (uint32_t i = 0; i < THREADS; i++) {
        struct history *h = &known.threads[(first + i) % THREADS];
        if (h->thread == thread && h->count) return h;
        if (h->count) continue;
        if (make) h->thread = thread;
        return make ? h : NULL;
    }
    return NULL;
}

static void add_state(struct history *h, uint64_t ticks, uint32_t state)
{
    h->edge[h->count % EDGES].ticks = ticks;
    h->edge[h->count % EDGES].state = state;
    h->state = state;
    h->count++;
}

void tfi_select_note(const struct tfi_thread *t)
{
    if (TFI_LIKELY(tfi_config.select != TFI_SELECT_NAMES)) return;
    uint32_t thread = (uint32_t)t->slot->pthread;
    uint32_t selected = __atomic_load_n(&t->selected, __ATOMIC_RELAXED);
    uint32_t stages = __atomic_load_n(&t->stages, __ATOMIC_RELAXED);
    uint32_t state = selected ? SELECTED : stages ? NOT_SELECTED : NO_STAGE;
    if (!known.threads && !tfi_select_init()) return;
    if (!tfi_lock_quick(&known.lock)) return;
    struct history *h = history_of(thread, true);
    if (!h) known.lost = 1;
    if (h && (h->state != state || !h->count)) {
        uint64_t now = tfi_ticks();
        uint32_t others = known.all->state;
        if (h->state == SELECTED) others--;
        if (state == SELECTED) others++;
        add_state(h, now, state);
        if (others != known.all->state || !known.all->count) add_state(known.all, now, others);
    }
    tfi_unlock_quick(&known.lock);
}

static void counted(struct tfi_thread *t, const struct tfi_open *open, int step, bool turned)
{
    (void)open, (void)step, (void)turned;
    tfi_select_note(t);
}

static const struct tfi_watcher watcher = {.restart = restart, .counted = counted};

void tfi_select_constructor(void)
{
    tfi_watch(&watcher);
}

/* State at a moment; `before` is the state before the first edge; -1 if the moment is too old to be known. */
static int at(const struct history *h, uint64_t ticks, int before)
{
    uint64_t first = h->count > EDGES ? h->count - EDGES : 0;
    for (uint64_t i = h->count; i > first; i--)
        if (h->edge[(i - 1) % EDGES].ticks <= ticks) return (int)h->edge[(i - 1) % EDGES].state;
    return first ? -1 : before;
}

static enum tfi_verdict judge(uint32_t thread, uint64_t ticks)
{
    enum tfi_verdict verdict = TFI_VERDICT_UNKNOWN;
    if (!tfi_lock_quick(&known.lock)) return verdict;
    const struct history *h = history_of(thread, false);
    int state = h ? at(h, ticks, NO_STAGE) : NO_STAGE, others = at(known.all, ticks, 0);
    if (!known.all->count || state < 0) verdict = TFI_VERDICT_UNKNOWN; /* no thread has reported stages */
    else if (state != NO_STAGE) verdict = state == SELECTED ? TFI_VERDICT_INSIDE : TFI_VERDICT_OUTSIDE;
    else if (others == 0 && !known.lost) verdict = TFI_VERDICT_OUTSIDE;
    tfi_unlock_quick(&known.lock);
    return verdict;
}

enum tfi_verdict tfi_select_at(uint64_t ticks)
{
    if (tfi_config.select == TFI_SELECT_NOTHING) return TFI_VERDICT_OUTSIDE;
    if (TFI_LIKELY(!tfi_recording_switched)) return TFI_VERDICT_INSIDE;
    int64_t word = tfi_recording_at(ticks);
    if (word < 0) return TFI_VERDICT_UNKNOWN;
    return word & TFI_ACTIVITY_GPU ? TFI_VERDICT_INSIDE : TFI_VERDICT_OUTSIDE;
}

enum tfi_verdict tfi_select_call(uint32_t id, uint32_t thread, uint64_t ticks)
{
    bool names = tfi_config.select == TFI_SELECT_NAMES;
    if (tfi_config.select == TFI_SELECT_NOTHING) return TFI_VERDICT_OUTSIDE;
    if (TFI_LIKELY(!names && !tfi_recording_switched)) return TFI_VERDICT_INSIDE;
    if (!make_table()) return TFI_VERDICT_UNKNOWN;
    enum tfi_verdict verdict = tfi_select_at(ticks);
    if (names && verdict == TFI_VERDICT_INSIDE) verdict = known.threads ? judge(thread, ticks) : TFI_VERDICT_UNKNOWN;
    known.calls[id % CALLS] = (id / CALLS) << 2 | (uint32_t)verdict;
    return verdict;
}

enum tfi_verdict tfi_select_of(uint32_t id)
{
    if (tfi_config.select == TFI_SELECT_NOTHING) return TFI_VERDICT_OUTSIDE;
    if (TFI_LIKELY(tfi_config.select != TFI_SELECT_NAMES && !tfi_recording_switched)) return TFI_VERDICT_INSIDE;
    if (!known.calls || !id) return TFI_VERDICT_UNKNOWN;
    uint32_t entry = known.calls[id % CALLS];
    return entry >> 2 == id / CALLS ? (enum tfi_verdict)(entry & 3) : TFI_VERDICT_UNKNOWN;
}
