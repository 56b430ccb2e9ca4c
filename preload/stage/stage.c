/* stage.c - opens and ends ranges, selects stages, and measures how long each stage took.
 *
 * A thread keeps its open ranges in a stack of its own. Its slot also lists its first TFI_SLOT_STAGES open stages,
 * for a reader of a running or killed process. Nested ranges are matched by domain, as in NVTX. A started range lies
 * in the stack of the thread that opened it. Any thread may end it, and finds it in a table by its id. A pause takes
 * it off that stack. Any thread may resume it, and then has it on its own stack.
 *
 * Selection: with ENABLE_PROFILER_NAMES set, a thread is recorded in detail while one of its open stages matches. A
 * thread without stages follows the only thread that has some. If several threads have stages, nothing says which one
 * to follow, and the thread is not recorded in detail.
 *
 * Times by stage are summed for timing.json only (timing.c). Recursion counts once, by name within a thread. Host
 * time is the time a stage ran, without its pauses; wall time is from its beginning to its end.
 */
#include "stage/stage.h"

#include <errno.h>

#include "base/process.h"
#include "base/sys.h"
#include "control/config.h"
#include "control/schedule.h"
#include "flight/slow_stages.h"
#include "record/clock.h"
#include "record/strings.h"
#include "record/thread.h"
#include "record/upkeep.h"
#include "stage/open_names.h"
#include "stage/open_stack.h"
#include "stage/stage_cpu.h"
#include "stage/telefuser_timing.h"
#include "stage/tell.h"
#include "stage/timing.h"

#define MAX_STARTED 65536u

/* A started range that has not ended yet. Its id holds its index. */
struct started {
    uint64_t id;               /* 0: free */
    struct tfi_thread *thread; /* the thread on whose stack it lies; NULL while paused, or once that thread has ended */
    uint32_t serial;           /* of the thread that opened it */
    struct tfi_open range;
};

static struct {
    struct tfi_lock lock;
    uint32_t used; /* entries ever used */
    uint32_t nr_free;
    uint64_t count;
    uint64_t before; /* count when this trace was opened: older ids are a parent's, or an earlier trace's */
    uint16_t *free;
    struct started *entry;
} started;
static uint64_t threads; /* number of threads with stages; upper half: with selected stages, as in a thread's `both` */

static void forget_thread(struct tfi_thread *t);

bool tfi_stage_init(void)
{
    started.lock = (struct tfi_lock){0};
    started.used = started.nr_free = 0;
    started.before = started.count;
    started.entry = tfi_map(MAX_STARTED * sizeof *started.entry);
    started.free = tfi_map(MAX_STARTED * sizeof *started.free);
    threads = 0;
    tfi_thread_at_end(forget_thread);
    tfi_tell_restart();
    tfi_request_restart();
    return tfi_timing_init() && started.entry && started.free;
}

static bool is_selected(uint32_t name)
{
    enum { UNKNOWN, NO, YES };
    size_t length;
    if (tfi_config.select != TFI_SELECT_NAMES) return tfi_config.select == TFI_SELECT_ALL;
    struct tfi_timing *s = tfi_timing_of(name);
    uint32_t known = s ? __atomic_load_n(&s->selected, __ATOMIC_RELAXED) : UNKNOWN;
    if (known == UNKNOWN) {
        const char *text = tfi_string_text(name, &length);
        known = text && tfi_config_selects(text, length) ? YES : NO;
        if (s) __atomic_store_n(&s->selected, known, __ATOMIC_RELAXED);
    }
    return known == YES;
}

/* True if entries of a stage of this name are steps. `schedule` is tfi_schedule_runs. */
static bool is_step(uint32_t name, uint32_t schedule)
{
    size_t length;
    struct tfi_timing *s = tfi_timing_of(name);
    uint32_t known = s ? __atomic_load_n(&s->step, __ATOMIC_RELAXED) : 0;
    if (known >> 1 != schedule) {
        const char *text = tfi_string_text(name, &length);
        known = schedule << 1 | (text && tfi_schedule_counts(text, length));
        if (s) __atomic_store_n(&s->step, known, __ATOMIC_RELAXED);
    }
    return known & 1;
}

/* Runs before a stage begins: may switch recording. */
static void before_stage(struct tfi_thread *t, const struct tfi_range *range)
{
    tfi_recording_tick(t);
    if (range->flags & TFI_RANGE_STAGE) tfi_tell_edge();
    uint32_t schedule = __atomic_load_n(&tfi_schedule_runs, __ATOMIC_RELAXED);
    if (TFI_LIKELY(!schedule)) return;
    if (range->flags & TFI_RANGE_STAGE && is_step(range->name, schedule)) tfi_schedule_step(t);
}

static uint64_t both(bool stages, bool selected)
{
    return (uint64_t)stages | (uint64_t)selected << 32;
}

bool tfi_stage_detail_elsewhere(void)
{
    return __atomic_load_n(&threads, __ATOMIC_RELAXED) == both(1, 1);
}

/* ---- the stack ---- */

/* Lists a stage in the slot, for a reader of the live file, if there is a place for it. */
static void show_in_slot(struct tfi_thread *t, uint32_t stages_before, const struct tfi_open *open)
{
    struct tfi_slot *slot = t->slot;
    if (stages_before >= TFI_SLOT_STAGES) return;
    slot->stage[stages_before].start = open->start;
    slot->stage[stages_before].name = open->name;
    slot->stage[stages_before].id = (uint32_t)open->id;
}

/* Takes a stage off the slot's list; it need not be the last one. If another thread ends it while this one opens the
 * next, the list may be wrong for a while; nothing depends on it. */
static void hide_in_slot(struct tfi_thread *t, uint32_t stages_before, const struct tfi_open *open)
{
    struct tfi_slot *slot = t->slot;
    uint32_t count = stages_before < TFI_SLOT_STAGES ? stages_before : TFI_SLOT_STAGES, i = count;
    while (i > 0 && (slot->stage[i - 1].id != (uint32_t)open->id || slot->stage[i - 1].start != open->start)) i--;
    for (; i > 0 && i < count; i++) slot->stage[i - 1] = slot->stage[i];
}

/* Counts a stage of thread `t` that begins (step 1) or ends (-1). For started ranges `t` may differ from the caller. */
static void count_stage(struct tfi_thread *t, const struct tfi_open *open, int step)
{
    if (!(open->flags & TFI_RANGE_STAGE)) return;
    uint64_t sign = (uint64_t)(int64_t)step;
    uint64_t before = __atomic_fetch_add(&t->both, sign * both(true, open->selected), __ATOMIC_RELAXED);
    uint64_t fewer = step > 0 ? before : before - both(true, open->selected);
    uint32_t stages = (uint32_t)before, selected = (uint32_t)(fewer >> 32);
    if (step > 0) show_in_slot(t, stages, open);
    else hide_in_slot(t, stages, open);
    __atomic_store_n(&t->slot->stages, stages + (uint32_t)step, __ATOMIC_RELEASE);
    uint64_t first = both((uint32_t)fewer == 0, open->selected && selected == 0);
    if (first) __atomic_add_fetch(&threads, sign * first, __ATOMIC_RELAXED);
    tfi_tell_counted(t, open, step, (uint32_t)fewer == 0);
}

/* Removes the range at `index` from the stack. */
static void remove_range(struct tfi_thread *t, uint32_t index)
{
    struct tfi_open open = t->open[index];
    bool top = index + 1 == t->nr_open;
    tfi_open_take(t, index);
    if (open.flags & TFI_RANGE_STAGE) tfi_tell_taken(t, &open, top);
}

static bool is_on(const struct tfi_thread *t, uint64_t id)
{
    const struct started *entry = &started.entry[id % MAX_STARTED];
    return entry->id == id && entry->thread == t;
}

TFI_COLD void tfi_stage_sweep(struct tfi_thread *t)
{
    if (!tfi_lock_quick(&started.lock)) return;
    for (uint32_t i = t->nr_open; i-- > 0;) {
        const struct tfi_open *open = &t->open[i];
        if (open->id && !(open->flags & TFI_RANGE_NESTED) && !is_on(t, open->id)) remove_range(t, i);
    }
    __atomic_store_n(&t->ended, 0, __ATOMIC_RELAXED);
    tfi_unlock_quick(&started.lock);
}

static inline void sweep_if_needed(struct tfi_thread *t)
{
    if (TFI_UNLIKELY(__atomic_load_n(&t->ended, __ATOMIC_RELAXED))) tfi_stage_sweep(t);
}

/* Takes a started range off the caller's stack. */
static void take_off(struct tfi_thread *t, const struct tfi_open *range)
{
    int64_t index = tfi_open_find(t, range->order, range->id);
    if (index >= 0) remove_range(t, (uint32_t)index);
}

/* Takes a started range away from its owner; the caller holds the lock. If the owner is another thread than the
 * caller, it removes the range from its stack later, in tfi_stage_sweep(). */
static void leave_owner(const struct tfi_thread *t, const struct started *entry)
{
    if (!entry->thread) return;
    count_stage(entry->thread, &entry->range, -1);
    if (entry->thread == t) return;
    __atomic_add_fetch(&entry->thread->ended, 1, __ATOMIC_RELAXED);
    tfi_tell_ended_elsewhere(entry->thread, &entry->range);
}

/* ---- records ---- */

static void write_begin(struct tfi_thread *t, const struct tfi_range *range, const struct tfi_open *open)
{
    uint32_t stack = open->flags & TFI_RANGE_STAGE ? tfi_callstack(t) : 0;
    struct tfi_rec_range_begin *rec = TFI_RESERVE(t, range_begin);
    if (!rec) return;
    rec->name = open->name;
    rec->time = open->start;
    rec->id = open->id;
    rec->flags = open->flags;
    rec->domain = open->domain;
    rec->category = range->category;
    rec->color = range->color;
    rec->payload = range->payload;
    rec->payload_type = range->payload_type;
    rec->depth = open->depth;
    rec->stack = stack;
    rec->shapes = range->shapes;
    rec->types = range->types;
    rec->concrete = range->concrete;
    rec->strides = range->strides;
    rec->modules = range->modules;
    tfi_commit(t, sizeof *rec);
}

static void write_end(struct tfi_thread *t, const struct tfi_open *open, uint32_t thread, uint64_t now, uint64_t cpu)
{
    struct tfi_rec_range_end *rec = TFI_RESERVE(t, range_end);
    if (!rec) return;
    rec->name = open->name;
    rec->time = now;
    rec->duration = open->start ? now - open->start : 0;
    rec->id = open->id;
    rec->flags = open->flags;
    rec->thread = thread;
    rec->domain = open->domain;
    rec->depth = open->depth;
    rec->cpu = cpu;
    tfi_commit(t, sizeof *rec);
}

/* Describes a range that is being opened, for both ways of opening; `flags` says whether it is NESTED. */
static struct tfi_open describe(struct tfi_thread *t, const struct tfi_range *range, uint32_t flags)
{
    bool stage = flags & TFI_RANGE_STAGE, outermost = stage && !tfi_open_already(t, range->name);
    return (struct tfi_open){
        .name = range->name,
        .domain = range->domain,
        .flags = flags,
        .order = ++t->orders,
        .selected = stage && is_selected(range->name),
        .outermost = outermost,
        .first = outermost,
    };
}

static bool put_on(struct tfi_thread *t, struct tfi_open *open)
{
    if (!tfi_open_put(t, open)) {
        tfi_count_drop(TFI_DROP_RANGES, 1);
        return false;
    }
    if (open->flags & TFI_RANGE_STAGE) tfi_tell_put(t);
    count_stage(t, open, 1);
    return true;
}

/* Removes the owner of a started range for which its thread's stack had no room; it was not counted as a stage
 * either. */
static TFI_COLD void disown(uint64_t id)
{
    struct started *entry = &started.entry[id % MAX_STARTED];
    if (!tfi_lock_quick(&started.lock)) return;
    if (entry->id == id) entry->thread = NULL;
    tfi_unlock_quick(&started.lock);
}

/* Writes the beginning and puts the range on the stack. */
static void begin_stage(struct tfi_thread *t, const struct tfi_range *range, struct tfi_open *open)
{
    write_begin(t, range, open);
    bool on = put_on(t, open);
    if (on && open->flags & TFI_RANGE_STAGE) tfi_tell_opened(t, open);
    if (!on && !(open->flags & TFI_RANGE_NESTED)) disown(open->id);
    tfi_clock_tick(t, open->start);
}

/* Ticks a range has run. If the same stage was open below it, its own last part counts 0: that stage's time includes
 * it. */
static uint64_t ran_until(const struct tfi_open *open, uint64_t now)
{
    return open->ran + (open->outermost && !open->paused ? now - open->since : 0);
}

static void raise_longest(struct tfi_timing *s, uint64_t ticks)
{
    uint64_t longest = __atomic_load_n(&s->longest, __ATOMIC_RELAXED);
    while (ticks > longest &&
           !__atomic_compare_exchange_n(&s->longest, &longest, ticks, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        continue;
}

bool tfi_stage_waits(uint32_t flags)
{
    return tfi_config.sync_stages == 1 || flags & TFI_RANGE_WAITS;
}

static void add_time(struct tfi_thread *t, const struct tfi_open *open, uint64_t now)
{
    bool timed = open->flags & TFI_RANGE_STAGE && open->name;
    struct tfi_timing *s = timed ? tfi_timing_of(open->name) : NULL;
    uint64_t ticks = ran_until(open, now);
    if (timed && !s) tfi_timing_left_out();
    if (open->flags & TFI_RANGE_STAGE) tfi_tell_ended(t, open, now, s);
    if (timed && tfi_config.mode == TFI_MODE_FLIGHT) tfi_flight_stage(t, open->name, open->start, now, !open->first);
    if (!s) return;
    __atomic_add_fetch(&s->calls, 1, __ATOMIC_RELAXED);
    if (tfi_stage_waits(open->flags)) __atomic_add_fetch(&s->waited, 1, __ATOMIC_RELAXED);
    tfi_request_add(s, now - open->start);
    __atomic_add_fetch(open->first ? &s->wall : &s->again, now - open->start, __ATOMIC_RELAXED);
    if (!ticks) return;
    __atomic_add_fetch(&s->ticks, ticks, __ATOMIC_RELAXED);
    raise_longest(s, ticks);
}

/* ---- the functions of stage.h ---- */

int tfi_stage_push(struct tfi_thread *t, const struct tfi_range *range)
{
    before_stage(t, range);
    struct tfi_open open = describe(t, range, range->flags | TFI_RANGE_NESTED);
    int64_t below = tfi_open_innermost(t, range->domain);
    open.depth = below < 0 ? 0 : t->open[below].depth + 1;
    open.id = (uint64_t)(t->serial & 0x3fffff) << 40 | ++t->ranges;
    open.start = open.since = tfi_ticks();
    tfi_cpu_begin(t, &open);
    begin_stage(t, range, &open);
    return (int)open.depth;
}

int tfi_stage_pop(struct tfi_thread *t, uint32_t domain)
{
    tfi_tell_edge();
    uint64_t now = tfi_ticks();
    int64_t index = tfi_open_innermost(t, domain);
    if (index < 0) {
        tfi_count_drop(TFI_DROP_UNMATCHED, 1);
        return -1;
    }
    struct tfi_open open = t->open[index];
    remove_range(t, (uint32_t)index);
    count_stage(t, &open, -1);
    write_end(t, &open, t->serial, now, tfi_cpu_used(t, t, &open, now));
    add_time(t, &open, now);
    sweep_if_needed(t);
    tfi_clock_tick(t, now);
    tfi_recording_tick(t);
    return (int)open.depth;
}

/* Gives a started range its id and an entry in the table. If the table is full the range is still recorded. */
static void register_started(struct tfi_thread *t, struct tfi_open *open)
{
    uint32_t index = MAX_STARTED - 1; /* the last one is never used: "not in the table" */
    bool locked = tfi_lock_quick(&started.lock);
    if (locked && started.nr_free) index = started.free[--started.nr_free];
    else if (locked && started.used < MAX_STARTED - 1) index = started.used++;
    open->id = (uint64_t)1 << 62 | __atomic_add_fetch(&started.count, 1, __ATOMIC_RELAXED) * MAX_STARTED | index;
    if (index < MAX_STARTED - 1) started.entry[index] = (struct started){open->id, t, t->serial, *open};
    if (locked) tfi_unlock_quick(&started.lock);
}

uint64_t tfi_stage_start(struct tfi_thread *t, const struct tfi_range *range)
{
    before_stage(t, range);
    sweep_if_needed(t);
    struct tfi_open open = describe(t, range, range->flags & ~(uint32_t)TFI_RANGE_NESTED);
    open.start = open.since = tfi_ticks();
    tfi_cpu_begin(t, &open);
    register_started(t, &open);
    if (open.id % MAX_STARTED < MAX_STARTED - 1) {
        begin_stage(t, range, &open);
    } else {
        write_begin(t, range, &open);
        tfi_count_drop(TFI_DROP_RANGES, 1);
    }
    return open.id;
}

uint64_t tfi_stage_past(struct tfi_thread *t, const struct tfi_range *range, uint64_t start, uint64_t end)
{
    uint64_t first = tfi_clock_first()->ticks, now = tfi_ticks();
    struct tfi_open open = {.name = range->name, .domain = range->domain, .flags = range->flags};
    end = end < now ? end : now;
    end = end > first ? end : first;
    open.start = start > first ? start : first;
    if (open.start > end) open.start = end;
    open.id = (uint64_t)(t->serial & 0x3fffff) << 40 | ++t->ranges;
    if (range->payload_type) write_begin(t, range, &open);
    write_end(t, &open, t->serial, end, 0);
    struct tfi_timing *s = open.flags & TFI_RANGE_STAGE && open.name ? tfi_timing_of(open.name) : NULL;
    if (!s) return open.id;
    uint64_t lasted = end - open.start;
    __atomic_add_fetch(&s->calls, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&s->wall, lasted, __ATOMIC_RELAXED);
    __atomic_add_fetch(&s->ticks, lasted, __ATOMIC_RELAXED);
    raise_longest(s, lasted);
    if (tfi_config.mode == TFI_MODE_FLIGHT) tfi_flight_stage(t, open.name, open.start, end, false);
    return open.id;
}

/* True if the id is of an earlier trace in this memory: the range was opened in a parent process or before a failed
 * exec. */
static bool is_older(uint64_t id)
{
    return id >> 62 == 1 && (id & (((uint64_t)1 << 62) - 1)) / MAX_STARTED <= started.before;
}

/* True if an open started range is a stage: operators are started ranges too. */
static bool is_stage(uint64_t id)
{
    const struct started *entry = &started.entry[id % MAX_STARTED];
    return entry->id == id && entry->range.flags & TFI_RANGE_STAGE;
}

void tfi_stage_end(struct tfi_thread *t, uint64_t id)
{
    if (is_stage(id)) tfi_tell_edge();
    uint64_t now = tfi_ticks();
    uint32_t index = id % MAX_STARTED;
    struct started *entry = &started.entry[index], found = {.id = 0};
    if (!tfi_lock_quick(&started.lock)) return;
    if (id && entry->id == id) {
        found = *entry;
        entry->id = 0;
        started.free[started.nr_free] = (uint16_t)index;
        __atomic_signal_fence(__ATOMIC_SEQ_CST); /* after a jump at any point the list still has free entries only */
        started.nr_free++;
        leave_owner(t, &found);
    }
    tfi_unlock_quick(&started.lock);
    if (!found.id && is_older(id)) return;
    if (!found.id) {
        struct tfi_open unknown = {.id = id, .flags = TFI_RANGE_UNTRACKED};
        if (index != MAX_STARTED - 1) tfi_count_drop(TFI_DROP_UNMATCHED, 1);
        write_end(t, &unknown, 0, now, 0);
        return;
    }
    if (found.thread == t) take_off(t, &found.range);
    if (found.range.flags & TFI_RANGE_TORCH && found.serial != t->serial) found.range.flags |= TFI_RANGE_ASYNC;
    write_end(t, &found.range, found.serial, now, tfi_cpu_used(t, found.thread, &found.range, now));
    add_time(t, &found.range, now);
    tfi_clock_tick(t, now);
    tfi_recording_tick(t);
}

/* Writes a range_pause or range_resume record (14 and 15), which have the same columns. */
static void write_switch(struct tfi_thread *t, uint16_t kind, uint32_t name, uint64_t id, uint64_t now)
{
    struct tfi_rec_range_pause *rec = tfi_reserve(t, sizeof *rec, kind);
    if (!rec) return;
    rec->name = name;
    rec->time = now;
    rec->id = id;
    tfi_commit(t, sizeof *rec);
    tfi_clock_tick(t, now);
}

/* Counts a pause or resume of a range that is not open, or is already in that state. */
static void count_unmatched(uint64_t id)
{
    if (id % MAX_STARTED != MAX_STARTED - 1 && !is_older(id)) tfi_count_drop(TFI_DROP_UNMATCHED, 1);
}

unsigned tfi_stage_list(struct tfi_thread *t, uint32_t origins, uint64_t *ids, unsigned room)
{
    unsigned count = 0;
    sweep_if_needed(t);
    for (uint32_t i = 0; i < t->nr_open && count < room; i++)
        if (t->open[i].flags & origins && !(t->open[i].flags & TFI_RANGE_NESTED)) ids[count++] = t->open[i].id;
    return count;
}

void tfi_stage_pause(struct tfi_thread *t, uint64_t id)
{
    uint64_t now = tfi_ticks();
    struct started *entry = &started.entry[id % MAX_STARTED];
    struct tfi_thread *owner = NULL;
    if (!tfi_lock_quick(&started.lock)) return;
    bool open = id && entry->id == id && !entry->range.paused;
    struct tfi_open range = entry->range;
    if (open) {
        owner = entry->thread;
        entry->range.ran = ran_until(&entry->range, now);
        entry->range.cpu = tfi_cpu_used(t, owner, &entry->range, now);
        entry->range.paused = 1;
        entry->range.flags |= TFI_RANGE_PAUSES;
        leave_owner(t, entry);
        entry->thread = NULL;
    }
    tfi_unlock_quick(&started.lock);
    if (!open) {
        count_unmatched(id);
        return;
    }
    if (owner == t) take_off(t, &range);
    write_switch(t, TFI_KIND_range_pause, range.name, id, now);
}

void tfi_stage_resume(struct tfi_thread *t, uint64_t id)
{
    uint64_t now = tfi_ticks();
    struct started *entry = &started.entry[id % MAX_STARTED];
    struct tfi_open range = {.id = 0};
    sweep_if_needed(t);
    if (!tfi_lock_quick(&started.lock)) return;
    if (id && entry->id == id && entry->range.paused) {
        entry->thread = t;
        entry->range.paused = 0;
        entry->range.order = ++t->orders;
        entry->range.since = now;
        tfi_cpu_resume(t, &entry->range);
        entry->range.outermost = (entry->range.flags & TFI_RANGE_STAGE) && !tfi_open_already(t, entry->range.name);
        range = entry->range;
        if (!put_on(t, &range)) entry->thread = NULL;
    }
    tfi_unlock_quick(&started.lock);
    if (range.id) write_switch(t, TFI_KIND_range_resume, range.name, id, now);
    else count_unmatched(id);
}

uint32_t tfi_stage_name(uint64_t id)
{
    const struct started *entry = &started.entry[id % MAX_STARTED];
    if (!tfi_lock_quick(&started.lock)) return 0;
    uint32_t name = id && entry->id == id ? entry->range.name : 0;
    tfi_unlock_quick(&started.lock);
    return name;
}

void tfi_stage_mark(struct tfi_thread *t, const struct tfi_range *mark)
{
    struct tfi_rec_mark *rec = TFI_RESERVE(t, mark);
    if (!rec) return;
    rec->name = mark->name;
    rec->time = tfi_ticks();
    rec->flags = mark->flags;
    rec->domain = mark->domain;
    rec->category = mark->category;
    rec->color = mark->color;
    rec->payload = mark->payload;
    rec->payload_type = mark->payload_type;
    rec->reserved = 0;
    tfi_commit(t, sizeof *rec);
}

/* Forgets the open ranges of a thread that ends. */
static void forget_thread(struct tfi_thread *t)
{
    bool locked = tfi_lock_quick(&started.lock);
    for (uint32_t i = 0; i < t->nr_open; i++) {
        struct started *entry = &started.entry[t->open[i].id % MAX_STARTED];
        if (!t->open[i].id) continue;
        bool nested = t->open[i].flags & TFI_RANGE_NESTED, mine = locked && !nested && is_on(t, t->open[i].id);
        if (nested || mine) count_stage(t, &t->open[i], -1);
        if (nested) tfi_tell_forgotten(&t->open[i]);
        if (mine) entry->thread = NULL;
    }
    tfi_open_empty(t);
    tfi_tell_emptied(t);
    if (locked) tfi_unlock_quick(&started.lock);
}

uint64_t tfi_stage_started(uint64_t id)
{
    const struct started *entry = &started.entry[id % MAX_STARTED];
    if (!tfi_lock_quick(&started.lock)) return 0;
    uint64_t start = id && entry->id == id ? entry->range.start : 0;
    tfi_unlock_quick(&started.lock);
    return start;
}
