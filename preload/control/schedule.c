/* schedule.c - switches recording while the program runs.
 *
 * Recording is on while three inputs agree: the schedule (torch.profiler's table, by entries of the step stage), the
 * capture window (cudaProfilerStart to -Stop, a delay, a length) and the trigger (trigger.c). A fourth input restricts
 * the activities: the embedded profilers of the program, which this library replaces. The result is one word that every
 * record tests, and a `recording` record at each change.
 *
 * Steps and profiler calls switch at once, in their own thread. Times and triggers are checked by the background
 * thread, at edges of stages, and by calls that find recording off, at most every 100 ms or when a time is up. There
 * is no timer, so this also works in a forked process or one without a background thread.
 *
 * Each process counts for itself: a forked one starts at step 0, outside of any cudaProfilerStart. A delay counts from
 * the start of the program, so that it ends at the same moment in all of them.
 */
#include "control/schedule.h"

#include <string.h>

#include "base/fmt.h"
#include "base/sys.h"
#include "control/config.h"
#include "record/background.h"
#include "record/clock.h"
#include "record/enter.h"
#include "record/strings.h"
#include "record/thread.h"
#include "record/writer.h"

#define EDGES 4096u
#define LOOK_NS 100000000u

uint32_t tfi_recording_now, tfi_recording_switched, tfi_schedule_runs;
uint64_t tfi_recording_look_at = UINT64_MAX;

enum window { BEFORE, OPEN, PAST };

/* State last written as a `recording` record. */
struct told {
    uint32_t word; /* tfi_recording_now */
    uint32_t state;
    uint32_t cycle;
    uint64_t step;
};

static struct {
    struct tfi_lock lock; /* of all below */
    pid_t pid;
    bool told; /* `last` was written in this trace */
    struct told last;
    uint64_t first_ns; /* start of the program */
    struct tfi_plan plan;
    uint32_t plans; /* schedules so far */
    uint64_t steps; /* entries of the step stage */
    char step[256]; /* the step stage that came with the plan, or a list of them; "" if none did */
    enum window window;
    uint64_t opens_ns; /* the window's opening and closing; UINT64_MAX: never */
    uint64_t closes_ns;
    struct tfi_wish wish;
    uint32_t askers[32]; /* by bit of the word: embedded profilers that requested it */
    uint32_t looking;    /* one thread checks times and triggers; others do not wait for it */
    uint64_t edges;
    struct {
        uint64_t ticks;
        uint64_t word;
    } edge[EDGES];
} now;

/* The process whose cudaProfilerStart is in effect, 0 if none is. */
static pid_t captured;

/* ---- switching; the caller holds the lock ---- */

static void write_record(struct tfi_thread *t, const struct told *told, uint64_t ticks, const char *cause)
{
    struct tfi_rec_recording row = {
        .rec = {TFI_KIND_recording, sizeof row},
        .state = told->state,
        .time = ticks,
        .activities = told->word & ~(TFI_RECORDING_ANY | TFI_RECORDING_SHAPES),
        .cause = tfi_string(cause, strlen(cause)),
        .step = told->step,
        .cycle = told->cycle,
    };
    if (!t) {
        tfi_writer_append_own(&row, sizeof row);
        return;
    }
    struct tfi_rec_recording *rec = TFI_RESERVE(t, recording);
    if (!rec) return;
    *rec = row;
    tfi_commit(t, sizeof *rec);
}

static uint32_t word_of(uint32_t activities)
{
    return TFI_RECORDING_ANY | activities | (tfi_config.record_shapes ? TFI_RECORDING_SHAPES : 0);
}

/* Restricts `word` to the activities that embedded profilers requested and those fixed by the environment. Adds
 * `stack` if requested and not fixed. Returns `word` unchanged if no embedded profiler is active. */
static uint32_t as_asked(uint32_t word)
{
    uint32_t asked = 0, fixed = tfi_config.fixed;
    for (unsigned i = 0; i < TFI_COUNT(now.askers); i++) asked |= now.askers[i] ? 1u << i : 0;
    if (!(asked & TFI_RECORDING_ANY)) return word;
    return (word & (asked | fixed)) | (asked & ~fixed & TFI_ACTIVITY_STACK);
}

/* Computes the current state. */
static struct told judge(void)
{
    struct told is = {.state = TFI_RECORDING_ON};
    if (now.plan.active) {
        is.state = now.steps ? tfi_plan_at(&now.plan, now.steps - 1, &is.cycle) : TFI_RECORDING_OFF;
        is.step = now.steps ? now.steps - 1 : 0;
    }
    if (tfi_config.capture.set && now.window != OPEN) is.state = TFI_RECORDING_OFF;
    if (!now.wish.on) is.state = TFI_RECORDING_OFF;
    if (is.state != TFI_RECORDING_OFF) is.word = as_asked(word_of(now.wish.activities));
    return is;
}

/* Applies the current state and writes its record, if it differs from the last one. */
static void apply(struct tfi_thread *t, const char *cause)
{
    struct told is = judge();
    uint64_t ticks = tfi_ticks();
    if (now.told && is.word == now.last.word && is.state == now.last.state && is.cycle == now.last.cycle) return;
    now.edge[now.edges % EDGES].ticks = ticks;
    now.edge[now.edges % EDGES].word = is.word | (is.state == TFI_RECORDING_WARMUP ? TFI_RECORDING_WARMS : 0);
    now.edges++;
    now.last = is;
    now.told = true;
    __atomic_store_n(&tfi_recording_now, is.word, __ATOMIC_RELAXED);
    write_record(t, &is, ticks, cause);
}

/* ---- the window ---- */

static void set_window(uint64_t from_ns)
{
    now.window = BEFORE;
    now.opens_ns = from_ns + tfi_config.capture.delay_ns;
    now.closes_ns = tfi_config.capture.length_ns ? now.opens_ns + tfi_config.capture.length_ns : UINT64_MAX;
}

static void look_at_window(struct tfi_thread *t, uint64_t ns)
{
    if (now.window == BEFORE && ns >= now.opens_ns) {
        now.window = OPEN;
        apply(t, tfi_config.capture.delay_ns ? "delay" : "capture");
    }
    if (now.window == OPEN && ns >= now.closes_ns) {
        now.window = PAST;
        apply(t, "duration");
    }
}

static void set_captured(struct tfi_thread *t, bool on, uint64_t ns)
{
    if (on && now.window == PAST) set_window(ns);
    if (!on) now.window = PAST;
    if (on) look_at_window(t, ns);
    else apply(t, "capture");
}

/* ---- looking ---- */

static bool watched(void)
{
    const struct tfi_capture *c = &tfi_config.capture;
    return tfi_config.trigger.signal || tfi_config.trigger.path || (c->set && (c->delay_ns || c->length_ns));
}

/* The next moment at which the window or a trigger may change the state. */
static uint64_t next_ns(uint64_t ns)
{
    uint64_t next = UINT64_MAX;
    if (now.window == BEFORE) next = now.opens_ns;
    if (now.window == OPEN) next = now.closes_ns;
    if ((tfi_config.trigger.signal || tfi_config.trigger.path) && ns + LOOK_NS < next) next = ns + LOOK_NS;
    return next;
}

/* Sets the time of the next look, at most LOOK_NS ahead: the counter's rate is inaccurate at first. */
static void set_next_look(uint64_t ns)
{
    uint64_t next = next_ns(ns), left = next > ns ? next - ns : 0, ticks = UINT64_MAX;
    if (left > LOOK_NS) left = LOOK_NS;
    if (next != UINT64_MAX) ticks = tfi_ticks() + (uint64_t)((double)left / tfi_clock_ns_per_tick());
    __atomic_store_n(&tfi_recording_look_at, ticks, __ATOMIC_RELAXED);
}

TFI_COLD void tfi_recording_look(struct tfi_thread *t)
{
    tfi_signals_off(); /* after a jump out of here `looking` would stay set, and no thread would look again */
    if (__atomic_exchange_n(&now.looking, 1, __ATOMIC_ACQUIRE)) {
        tfi_signals_on();
        return;
    }
    struct tfi_wish wish = tfi_trigger_ask();
    uint64_t ns = tfi_monotonic_ns();
    if (tfi_lock(&now.lock)) {
        if (wish.cause) {
            now.wish = wish;
            apply(t, wish.cause);
        }
        if (tfi_config.capture.set) look_at_window(t, ns);
        set_next_look(ns);
        tfi_unlock(&now.lock);
    }
    __atomic_store_n(&now.looking, 0, __ATOMIC_RELEASE);
    tfi_signals_on();
    if (t && watched()) tfi_background_start(); /* again, because a fork ends the background thread */
}

TFI_COLD bool tfi_recording_off(const struct tfi_thread *t, uint64_t ticks)
{
    if (ticks < __atomic_load_n(&tfi_recording_look_at, __ATOMIC_RELAXED) || tfi_guarded((struct tfi_thread *)t))
        return false;
    struct tfi_thread *self = tfi_enter(TFI_WHY_NONE);
    if (!self) return false;
    tfi_recording_look(self);
    tfi_leave(self);
    return tfi_recording(TFI_RECORDING_ANY);
}

static unsigned wait_for_look(unsigned ms)
{
    if (TFI_LIKELY(!watched())) return ms;
    uint64_t ns = tfi_monotonic_ns();
    if (!tfi_lock(&now.lock)) return ms;
    uint64_t next = next_ns(ns), left = next > ns ? next - ns : 0;
    tfi_unlock(&now.lock);
    uint64_t left_ms = left / 1000000 + 1;
    return left_ms < ms ? (unsigned)left_ms : ms;
}

static bool look_if_due(void)
{
    tfi_recording_tick(NULL);
    return false;
}

const struct tfi_job tfi_schedule_job = {.work = look_if_due, .wait = wait_for_look};

int64_t tfi_recording_at(uint64_t ticks)
{
    int64_t word = -1;
    if (!tfi_lock(&now.lock)) return word;
    uint64_t first = now.edges > EDGES ? now.edges - EDGES : 0;
    for (uint64_t i = now.edges; word < 0 && i > first; i--)
        if (now.edge[(i - 1) % EDGES].ticks <= ticks) word = (int64_t)now.edge[(i - 1) % EDGES].word;
    tfi_unlock(&now.lock);
    return word;
}

/* ---- steps and calls ---- */

bool tfi_schedule_counts(const char *name, size_t length)
{
    char entry[256];
    const char *list = tfi_config.step ? tfi_config.step : now.step[0] ? now.step : "ProfilerStep#*";
    bool is_own = !tfi_config.step && length && strlen(now.step) == length && memcmp(now.step, name, length) == 0;
    if (is_own) return true;
    while (tfi_next_name(&list, entry, sizeof entry))
        if (tfi_glob(entry, name, length, false)) return true;
    return false;
}

void tfi_schedule_step(struct tfi_thread *t)
{
    if (!tfi_lock(&now.lock)) return;
    now.steps++;
    apply(t, "schedule");
    tfi_unlock(&now.lock);
}

bool tfi_schedule_never_began(void)
{
    return tfi_config.schedule.active && !__atomic_load_n(&now.steps, __ATOMIC_RELAXED);
}

int64_t tfi_schedule_set(struct tfi_thread *t, const char *text, const char *step)
{
    struct tfi_plan plan = {0};
    if (text && *text && !tfi_plan_parse(text, &plan)) return TFI_SCHEDULE_UNREADABLE;
    if (tfi_config.schedule.active || !tfi_lock(&now.lock)) return TFI_SCHEDULE_OF_USER;
    int64_t steps = (int64_t)now.steps;
    now.plan = plan;
    now.steps = 0;
    tfi_fmt(now.step, sizeof now.step, "%s", step ? step : "");
    __atomic_store_n(&tfi_recording_switched, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&tfi_schedule_runs, plan.active ? ++now.plans : 0, __ATOMIC_RELAXED);
    apply(t, "schedule");
    tfi_unlock(&now.lock);
    return steps;
}

void tfi_schedule_ask(struct tfi_thread *t, uint32_t wanted, bool begins)
{
    if (!tfi_lock(&now.lock)) return;
    for (unsigned i = 0; i < TFI_COUNT(now.askers); i++) {
        if (!(wanted >> i & 1)) continue;
        if (begins) now.askers[i]++;
        else if (now.askers[i]) now.askers[i]--; /* 0: the profiler began in a parent */
    }
    __atomic_store_n(&tfi_recording_switched, 1, __ATOMIC_RELAXED);
    apply(t, "profiler");
    tfi_unlock(&now.lock);
}

void tfi_capture_call(bool start)
{
    if (TFI_LIKELY(!tfi_config.capture.api)) return;
    __atomic_store_n(&captured, start ? tfi_getpid() : 0, __ATOMIC_RELAXED);
    struct tfi_thread *t = tfi_enter(TFI_WHY_CALL);
    if (!t) return; /* asleep: the wake reads `captured` */
    if (tfi_lock(&now.lock)) {
        set_captured(t, start, tfi_monotonic_ns());
        set_next_look(tfi_monotonic_ns());
        tfi_unlock(&now.lock);
    }
    tfi_leave(t);
}

/* ---- the beginning ---- */

void tfi_schedule_init(void)
{
    now.first_ns = tfi_monotonic_ns();
    tfi_recording_switched =
        tfi_config.schedule.active || tfi_config.capture.set || tfi_config.trigger.signal || tfi_config.trigger.path;
    if (!tfi_recording_switched) tfi_recording_now = word_of(tfi_config.activities);
}

void tfi_schedule_restart(void)
{
    pid_t pid = tfi_getpid();
    now.told = false;
    if (now.pid == pid) return;
    now.pid = pid;
    now.lock = (struct tfi_lock){0};
    now.looking = 0;
    now.steps = 0;
    now.plan = tfi_config.schedule;
    now.step[0] = 0;
    memset(now.askers, 0, sizeof now.askers);
    tfi_schedule_runs = now.plan.active ? ++now.plans : 0;
    tfi_recording_switched = tfi_schedule_runs || tfi_config.capture.set || watched();
    now.edge[0].ticks = 0;
    now.edge[0].word = tfi_recording_switched ? 0 : word_of(tfi_config.activities);
    now.edges = 1;
    bool begins_off = tfi_config.trigger.path || (tfi_config.trigger.signal && tfi_config.mode != TFI_MODE_FLIGHT);
    now.wish = (struct tfi_wish){!begins_off, tfi_config.activities, NULL};
    if (tfi_config.capture.api) now.window = PAST;
    else set_window(now.first_ns);
    tfi_trigger_restart();
}

/* The cause in the first `recording` record of a trace. */
static const char *first_cause(void)
{
    if (now.plan.active) return "schedule";
    if (tfi_config.capture.api) return "capture";
    if (tfi_config.capture.set) return tfi_config.capture.delay_ns ? "delay" : "duration";
    return tfi_config.trigger.path ? "file" : "signal";
}

void tfi_schedule_awake(struct tfi_thread *t)
{
    if (TFI_LIKELY(!tfi_recording_switched)) {
        tfi_recording_now = word_of(tfi_config.activities);
        return;
    }
    tfi_trigger_start();
    struct tfi_wish wish = tfi_trigger_ask();
    uint64_t ns = tfi_monotonic_ns();
    if (!tfi_lock(&now.lock)) return; /* no other thread holds it: the process is just waking */
    if (wish.cause) now.wish = wish;
    if (tfi_config.capture.api && now.window == PAST && __atomic_load_n(&captured, __ATOMIC_RELAXED) == now.pid)
        set_window(ns);
    if (now.window == BEFORE && ns >= now.opens_ns) now.window = OPEN;
    if (now.window == OPEN && ns >= now.closes_ns) now.window = PAST;
    apply(t, first_cause());
    set_next_look(ns);
    tfi_unlock(&now.lock);
    if (watched()) tfi_background_start();
}

#ifdef TFI_TEST_HOOKS
TFI_EXPORT bool tfi_test_is_recording(void);

/* Programs of the tests wait until recording is on or off. */
TFI_EXPORT bool tfi_test_is_recording(void)
{
    return tfi_recording(TFI_RECORDING_ANY);
}
#endif
