/* schedule.c - switches recording while the program runs.
 *
 * Three things may have a say, and recording is on where all of them agree: the schedule (torch.profiler's table, by
 * entries of the step stage), the capture window (cudaProfilerStart to -Stop, a delay, a length) and the trigger
 * (trigger.c). A fourth says what is recorded then: profilers of the program's own that we stand for. The result is one
 * word that every record looks at, and a `recording` record at each change.
 *
 * Who notices: steps and profiler calls switch at once, in their own thread. Time and triggers are looked at by the
 * background thread, at edges of stages, and by calls that find recording off, at most every 100 ms or when a time is
 * up: there is no timer, and a forked process or one without a background thread gets on as well.
 *
 * Each process counts for itself: a forked one starts at step 0, outside of any cudaProfilerStart. A delay counts from
 * when the program was started, so that it is the same moment in all of them.
 */
#include "schedule.h"

#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "config.h"
#include "fmt.h"
#include "strings.h"
#include "sys.h"
#include "thread.h"
#include "writer.h"

#define EDGES 4096u
#define LOOK_NS 100000000u

uint32_t tfi_recording_now, tfi_recording_switched, tfi_schedule_runs;
uint64_t tfi_recording_look_at = UINT64_MAX;

enum window { BEFORE, OPEN, PAST };

/* What a change is told with. */
struct told {
    uint32_t word; /* tfi_recording_now */
    uint32_t state;
    uint32_t cycle;
    uint64_t step;
};

static struct {
    struct tfi_lock lock; /* of all below */
    pid_t pid;
    bool told; /* anything, in this trace */
    struct told last;
    uint64_t first_ns; /* when the program was started */
    struct tfi_plan plan;
    uint32_t plans; /* so far */
    uint64_t steps; /* entries of the step stage */
    char step[256]; /* the step stage that came with the plan, or a list of them; "" if none did */
    enum window window;
    uint64_t opens_ns; /* the moments of a window that is set, UINT64_MAX for never */
    uint64_t closes_ns;
    struct tfi_wish wish;
    uint32_t askers[32]; /* of each bit of the word */
    uint32_t looking;    /* one thread looks, the others go on */
    uint64_t edges;
    struct {
        uint64_t ticks;
        uint64_t word;
    } edge[EDGES];
} now;

/* The process whose cudaProfilerStart holds, 0 if none does. */
static pid_t captured;

/* ---- the texts ---- */

/* Seconds with up to nine decimals. */
static bool seconds(const char *text, uint64_t *ns)
{
    char whole[16];
    uint64_t number;
    uint32_t part = 0, unit = 1000000000;
    size_t digits = strcspn(text, ".");
    if (digits >= sizeof whole) return false;
    memcpy(whole, text, digits);
    whole[digits] = 0;
    if (!tfi_whole_number(whole, 0, 100000000, &number)) return false;
    for (text += digits + (text[digits] == '.'); *text; text++) {
        if (*text < '0' || *text > '9' || unit == 1) return false;
        unit /= 10;
        part += (uint32_t)(*text - '0') * unit;
    }
    *ns = number * 1000000000u + part;
    return true;
}

bool tfi_plan_parse(const char *text, struct tfi_plan *plan)
{
    static const struct {
        const char *name;
        size_t field;
    } keys[] = {
        {"skip_first", offsetof(struct tfi_plan, skip_first)},
        {"skip_first_wait", offsetof(struct tfi_plan, skip_first_wait)},
        {"wait", offsetof(struct tfi_plan, wait)},
        {"warmup", offsetof(struct tfi_plan, warmup)},
        {"active", offsetof(struct tfi_plan, active)},
        {"repeat", offsetof(struct tfi_plan, repeat)},
    };
    struct tfi_plan found = {.warmup = 1, .active = 3, .repeat = 1};
    char entry[64];
    uint64_t number;
    bool any = false;
    while (tfi_next_name(&text, entry, sizeof entry)) {
        size_t length = strcspn(entry, "="), i = 0;
        while (i < TFI_COUNT(keys) && (strncmp(keys[i].name, entry, length) != 0 || keys[i].name[length])) i++;
        if (i == TFI_COUNT(keys) || !entry[length]) return false;
        if (!tfi_whole_number(entry + length + 1, 0, 1000000000, &number)) return false;
        *(uint32_t *)((char *)&found + keys[i].field) = (uint32_t)number;
        any = true;
    }
    if (!any || !found.active) return false;
    *plan = found;
    return true;
}

bool tfi_capture_parse(const char *text, struct tfi_capture *capture)
{
    struct tfi_capture found = {0};
    char entry[64];
    while (tfi_next_name(&text, entry, sizeof entry)) {
        if (strcmp(entry, "cudaProfilerApi") == 0) found.api = 1;
        else if (strncmp(entry, "delay=", 6) == 0) {
            if (!seconds(entry + 6, &found.delay_ns)) return false;
        } else if (strncmp(entry, "duration=", 9) == 0) {
            if (!seconds(entry + 9, &found.length_ns) || !found.length_ns) return false;
        } else return false;
        found.set = 1;
    }
    if (found.set) *capture = found;
    return found.set;
}

/* ---- torch's table ---- */

enum tfi_recording_state tfi_plan_at(const struct tfi_plan *plan, uint64_t step, uint32_t *cycle)
{
    uint64_t length = (uint64_t)plan->wait + plan->warmup + plan->active;
    *cycle = 0;
    if (step < plan->skip_first) return TFI_RECORDING_OFF;
    step -= plan->skip_first;
    if (plan->skip_first_wait) step += plan->wait;
    *cycle = (uint32_t)(step / length);
    if (plan->repeat && step / length >= plan->repeat) return TFI_RECORDING_OFF;
    step %= length;
    if (step < plan->wait) return TFI_RECORDING_OFF;
    return step < (uint64_t)plan->wait + plan->warmup ? TFI_RECORDING_WARMUP : TFI_RECORDING_ON;
}

/* ---- switching; all with the lock ---- */

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

/* The word as those want it who ask; as it is if nobody does. */
static uint32_t as_asked(uint32_t word)
{
    uint32_t asked = 0, fixed = tfi_config.fixed;
    for (unsigned i = 0; i < TFI_COUNT(now.askers); i++) asked |= now.askers[i] ? 1u << i : 0;
    if (!(asked & TFI_RECORDING_ANY)) return word;
    return (word & (asked | fixed)) | (asked & ~fixed & TFI_ACTIVITY_STACK);
}

/* What holds now. */
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

/* Makes it so, if it is anything new. */
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

/* Until when nothing can happen by itself. */
static uint64_t next_ns(uint64_t ns)
{
    uint64_t next = UINT64_MAX;
    if (now.window == BEFORE) next = now.opens_ns;
    if (now.window == OPEN) next = now.closes_ns;
    if ((tfi_config.trigger.signal || tfi_config.trigger.path) && ns + LOOK_NS < next) next = ns + LOOK_NS;
    return next;
}

/* The counter's rate is known badly at first, so a moment far away is approached. */
static void set_next_look(uint64_t ns)
{
    uint64_t next = next_ns(ns), left = next > ns ? next - ns : 0, ticks = UINT64_MAX;
    if (left > LOOK_NS) left = LOOK_NS;
    if (next != UINT64_MAX) ticks = tfi_ticks() + (uint64_t)((double)left / tfi_clock_ns_per_tick());
    __atomic_store_n(&tfi_recording_look_at, ticks, __ATOMIC_RELAXED);
}

TFI_COLD void tfi_recording_look(struct tfi_thread *t)
{
    tfi_signals_off(); /* nobody would look again */
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
    if (t && watched()) tfi_writer_start(); /* it ends where the program forks */
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

unsigned tfi_recording_wait(unsigned ms)
{
    if (TFI_LIKELY(!watched())) return ms;
    uint64_t ns = tfi_monotonic_ns();
    if (!tfi_lock(&now.lock)) return ms;
    uint64_t next = next_ns(ns), left = next > ns ? next - ns : 0;
    tfi_unlock(&now.lock);
    uint64_t left_ms = left / 1000000 + 1;
    return left_ms < ms ? (unsigned)left_ms : ms;
}

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
    if (!tfi_config.step && strlen(now.step) == length && memcmp(now.step, name, length) == 0) return true;
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
        else if (now.askers[i]) now.askers[i]--; /* else it began in a parent */
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
    if (!t) return; /* asleep: known when it wakes */
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
    now.wish = (struct tfi_wish){!tfi_config.trigger.signal && !tfi_config.trigger.path, tfi_config.activities, NULL};
    if (tfi_config.capture.api) now.window = PAST;
    else set_window(now.first_ns);
    tfi_trigger_restart();
}

/* What the first record of a trace gives as its reason. */
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
    if (!tfi_lock(&now.lock)) return; /* nobody has it: the process is just waking */
    if (wish.cause) now.wish = wish;
    if (tfi_config.capture.api && now.window == PAST && __atomic_load_n(&captured, __ATOMIC_RELAXED) == now.pid)
        set_window(ns);
    if (now.window == BEFORE && ns >= now.opens_ns) now.window = OPEN;
    if (now.window == OPEN && ns >= now.closes_ns) now.window = PAST;
    apply(t, first_cause());
    set_next_look(ns);
    tfi_unlock(&now.lock);
    if (watched()) tfi_writer_start();
}
