/* thread_sampler.c - a thread of the library's own looks at the program's threads, TFI_SAMPLE_HZ times a second.
 *
 * A look asks for the processor time of each thread that the interpreter knows. A thread that has not run since the look
 * before is where it was: nothing else is read, and its period grows. The others' stacks are read (stacks.c). What a thread
 * waits in is told by /proc/self/task/TID/syscall.
 *
 * The thread does not write the trace: it puts periods into a ring, from which the background thread takes them
 * (sample_records.c).
 *
 * Cost. If a look takes more than its share of a processor, the pauses become longer; the periods say so.
 *
 * A process that records everything is looked at from the moment that the interpreter runs something, even while it sleeps.
 * Its periods wait in the ring. When the script has run for a second outside imports, this thread wakes the process: a
 * program that only computes or waits calls no hook.
 */
#include "sample/thread_sampler.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/files.h"
#include "base/fmt.h"
#include "base/process.h"
#include "base/sys.h"
#include "control/config.h"
#include "control/schedule.h"
#include "record/enter.h"
#include "sample/outside.h"
#include "record/clock.h"
#include "record/thread.h"
#include "record/worker.h"
#include "sample/stacks.h"
#include "sample/tables.h"

enum {
    RING = 1 << 15,
    MOST_SEEN = 4096,
    PLACES = 2 * MOST_SEEN,
    FORK_MS = 50,
    SHARE = 100,     /* a look may take this part of its interval, */
    SHARE_HZ = 50,   /* at this rate or a lower one */
    LEAST_SHARE = 5, /* and never more than this part */
    MOST_NS = 1000000000,
    PTHREAD_TID = 720, /* in libc's descriptor of a thread: its kernel id */
    STATE = 320,
    WAKES = 1,
    ENDS = 2,
    BROKEN_LOOKS = 64, /* after so many, a thread that none of them reached has ended */
    GAP = 4, /* a look counts at most this part of a second: the process may have been stopped since the last one */
};

/* A thread that the last look found. */
struct seen {
    uint64_t state, interpreter, id;
    uint64_t cpu, last; /* at the last look */
    uint32_t tid, round;
    bool still; /* what was read then holds as long as the thread does not run */
    struct tfi_look period;
};

static struct tfi_look *ring;
static uint64_t written, taken, lost; /* periods; atomic */
static struct seen *seen;             /* the first nr_seen */
static uint16_t *places;              /* their index + 1, by the address of the state; 0: free */
static uint32_t nr_seen, round_number;
static uint64_t round_time; /* ticks of the look before; 0: there was none */
static uint64_t longest;    /* ticks: a period is no longer, but for its last look */
static bool looking;        /* in a look: the tables are not whole */
static pid_t owner;         /* the process that all this is of */
static uint64_t script;     /* ticks that the script has run outside imports while the process slept */
static bool slept;          /* the last look was at a sleeping process */
static uint32_t waking;     /* WAKES or ENDS; 0: neither yet */

static void loop(struct tfi_worker *self);
static struct tfi_worker sampler = {.loop = loop, .is_idle = true};

bool tfi_sampler_wanted(void)
{
    return tfi_config.sample_hz && tfi_config.select != TFI_SELECT_NOTHING;
}

/* ---- the ring ---- */

static void put_period(const struct tfi_look *look)
{
    uint64_t at = written;
    if (slept && tfi_recording_switched) return;
    if (at - __atomic_load_n(&taken, __ATOMIC_ACQUIRE) >= RING) {
        __atomic_add_fetch(&lost, 1, __ATOMIC_RELAXED);
        return;
    }
    ring[at % RING] = *look;
    __atomic_store_n(&written, at + 1, __ATOMIC_RELEASE);
}

unsigned tfi_sampler_take(struct tfi_look *looks, unsigned most)
{
    uint64_t at = taken, end = __atomic_load_n(&written, __ATOMIC_ACQUIRE);
    unsigned count = 0;
    for (; at < end && count < most; at++) looks[count++] = ring[at % RING];
    __atomic_store_n(&taken, at, __ATOMIC_RELEASE);
    return count;
}

uint64_t tfi_sampler_lost(void)
{
    return __atomic_exchange_n(&lost, 0, __ATOMIC_RELAXED);
}

static void end_period(struct seen *s)
{
    if (s->period.looks && s->period.duration) put_period(&s->period);
    s->period.looks = 0;
}

/* ---- the threads seen ---- */

static uint16_t *place_of(uint64_t state)
{
    uint32_t i = (uint32_t)((state >> 4) * 0x9e3779b1u >> 8) % PLACES;
    while (places[i] && seen[places[i] - 1].state != state) i = (i + 1) % PLACES;
    return &places[i];
}

/* True if another state of the interpreter has this thread. A state that is made for a new thread has its maker's numbers
 * until the thread runs, which replaces one after the other. `tid`: 0 if the state has none. */
static bool is_of_maker(uint64_t state, uint64_t interpreter, uint64_t id, uint32_t tid)
{
    for (uint32_t i = 0; i < nr_seen; i++)
        if (seen[i].interpreter == interpreter && seen[i].state != state &&
            (seen[i].id == id || (tid && seen[i].tid == tid)))
            return true;
    return false;
}

/* Finds the thread's entry, or makes one; NULL if there is no room, or if the thread has not begun. A new thread often has the
 * state and the id of one that has ended. */
static struct seen *entry_of(uint64_t state, uint64_t interpreter, uint64_t id, uint32_t tid)
{
    uint16_t *place = place_of(state);
    struct seen *s = *place ? &seen[*place - 1] : NULL;
    if (s && s->id == id && s->interpreter == interpreter && (!tid || s->tid == tid)) return s;
    if (is_of_maker(state, interpreter, id, tid) || (!s && nr_seen == MOST_SEEN)) return NULL;
    if (s) {
        end_period(s); /* of a thread whose state lay there before */
    } else {
        *place = (uint16_t)++nr_seen;
        s = &seen[nr_seen - 1];
    }
    *s = (struct seen){.state = state, .interpreter = interpreter, .id = id, .last = round_time};
    return s;
}

/* Ends the periods of threads that the last `rounds` looks did not find, and frees their entries. */
static void forget_ended(uint32_t rounds)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < nr_seen; i++)
        if (round_number - seen[i].round < rounds) seen[count++] = seen[i];
        else end_period(&seen[i]);
    if (count == nr_seen) return;
    nr_seen = count;
    memset(places, 0, PLACES * sizeof *places);
    for (uint32_t i = 0; i < count; i++) *place_of(seen[i].state) = (uint16_t)(i + 1);
}

/* ---- what a thread waits in ---- */

/* Adds the system call to the period. */
static void read_call(struct tfi_look *look, const struct tfi_gil *gil)
{
    enum { FUTEX = SYS_futex };
    char path[48], text[256];
    look->flags |= TFI_SAMPLED_BLIND;
    tfi_fmt(path, sizeof path, "/proc/self/task/%u/syscall", look->tid);
    if (tfi_read_file(path, text, sizeof text) <= 0) return;
    look->flags &= ~(uint32_t)TFI_SAMPLED_BLIND;
    if (text[0] == 'r') {
        look->flags |= TFI_SAMPLED_RUNNABLE;
        return;
    }
    char *end;
    long number = strtol(text, &end, 10);
    if (number < 0) return;
    look->call = (uint32_t)number + 1;
    uint64_t word = strtoul(end, NULL, 16);
    if (number == FUTEX && gil->address && word - gil->address < TFI_GIL_BYTES) look->flags |= TFI_SAMPLED_WANTS;
}

/* ---- a look ---- */

/* Returns the kernel id in a state; 0 if it has none, up to 3.10. */
static uint32_t tid_in(const char *copy)
{
    int64_t at = tfi_outside.layout->tid;
    return at >= 0 ? (uint32_t)tfi_pointer_in(copy, at) : 0;
}

/* Returns the kernel id that libc has in the descriptor of a thread; 0 if there is none. */
static uint32_t tid_of(uint64_t id)
{
    uint32_t tid = 0;
    if (!tfi_outside_pull(&tid, id + PTHREAD_TID, sizeof tid)) return 0;
    return syscall(SYS_tgkill, owner, tid, 0) == 0 ? tid : 0;
}

/* Looks at a thread that has run since the last look, or is new. */
static void look_closely(struct seen *s, const char *copy, const struct tfi_gil *gil, uint64_t now, uint64_t cpu)
{
    struct tfi_stack stack;
    uint64_t used = cpu - s->cpu;
    end_period(s);
    tfi_stack_read(&stack, s->state, copy, gil, s->tid, &cpu, &s->still);
    s->period = (struct tfi_look){.time = s->last,
                                  .duration = now - s->last,
                                  .cpu = used,
                                  .tid = s->tid,
                                  .stack = stack.number,
                                  .looks = 1,
                                  .flags = stack.flags};
    if (gil->locked && gil->holder == s->state) s->period.flags |= TFI_SAMPLED_HOLDS;
    if (s->still) read_call(&s->period, gil);
    else s->period.flags |= TFI_SAMPLED_RAN;
    s->cpu += used; /* what it used during the reading belongs to the next period */
    s->still = s->still && cpu == s->cpu;
}

/* Returns the thread's entry; NULL if there is none. */
static struct seen *look_at(uint64_t state, const char *copy, const struct tfi_gil *gil)
{
    uint32_t tid = tid_in(copy);
    struct seen *s = entry_of(state, tfi_pointer_in(copy, TFI_THREAD_INTERPRETER),
                              tfi_pointer_in(copy, tfi_outside.layout->id), tid);
    uint64_t cpu;
    if (!s) return NULL;
    if (!s->tid) s->tid = tid ? tid : tid_of(s->id);
    s->round = round_number;
    if (!tfi_outside_cpu(s->tid, &cpu)) {
        s->id = 0; /* it has ended: the next look finds who has the state now */
        return NULL;
    }
    uint64_t now = tfi_ticks();
    if (!s->last) { /* it has lived for longer than we look */
        s->cpu = cpu;
    } else if (s->still && cpu == s->cpu) {
        if (s->period.cpu || s->period.time + longest < now) {
            struct tfi_look next = s->period;
            end_period(s);
            s->period = next;
            s->period.time = s->last;
            s->period.cpu = s->period.looks = 0;
        }
        s->period.duration = now - s->period.time;
        s->period.looks++;
    } else {
        look_closely(s, copy, gil, now, cpu);
    }
    s->last = now;
    return s;
}

/* Returns the thread that began the interpreter, the last of its list; NULL if it is unknown. Clears `whole` if the list has
 * changed meanwhile: it was not read to its end, or ends at another state than the last time, as one does that is made
 * where a thread ended. */
static struct seen *look_at_interpreter(uint64_t interpreter, uint64_t *end, bool *whole)
{
    const struct tfi_python_layout *o = tfi_outside.layout;
    struct tfi_gil gil = {0};
    uint64_t state = 0, before = *end;
    char copy[STATE];
    struct seen *last = NULL;
    bool found = tfi_outside_pull(&state, interpreter + (uint64_t)o->threads, sizeof state);
    for (unsigned i = 0; found && state && i < MOST_SEEN; i++) {
        tfi_gil_read(&gil, interpreter);
        found = tfi_outside_pull(copy, state, tfi_state_bytes()) &&
                tfi_pointer_in(copy, TFI_THREAD_INTERPRETER) == interpreter;
        if (!found) break;
        last = look_at(state, copy, &gil);
        *end = state;
        state = tfi_pointer_in(copy, o->next);
    }
    *whole &= found && *end == before;
    return found ? last : NULL;
}

/* Adds the time since the look before, if the thread runs the script: it has frames, and imports nothing. */
static void count_script(const struct seen *s)
{
    uint64_t ran = s && round_time ? s->last - round_time : 0;
    if (!ran || !s->period.stack || s->period.flags & TFI_SAMPLED_IMPORT) return;
    script += ran < longest / GAP ? ran : longest / GAP;
}

static void look_at_all(void)
{
    static uint64_t interpreter[TFI_INTERPRETERS], end[TFI_INTERPRETERS];
    uint64_t now = tfi_ticks();
    unsigned count = tfi_outside_interpreters(interpreter);
    __atomic_store_n(&looking, true, __ATOMIC_RELEASE);
    round_number++;
    struct seen *first = NULL; /* the main interpreter is the last of the list */
    bool whole = true;
    for (unsigned i = 0; i < count; i++) first = look_at_interpreter(interpreter[i], &end[i], &whole);
    if (slept) count_script(first);
    forget_ended(whole ? 1 : BROKEN_LOOKS);
    round_time = now;
    __atomic_store_n(&looking, false, __ATOMIC_RELEASE);
}

/* Ends all periods: nothing is known of what follows. */
static void pause_looking(void)
{
    if (!round_time) return;
    round_number++;
    forget_ended(1);
    round_time = 0;
}

/* ---- the thread ---- */

static bool is_asleep(void)
{
    return __atomic_load_n(&tfi_process->state, __ATOMIC_ACQUIRE) < TFI_AWAKE;
}

/* True if there will be no records any more. */
static bool is_over(void)
{
    return __atomic_load_n(&tfi_process->state, __ATOMIC_ACQUIRE) > TFI_AWAKE;
}

/* True if some thread is in a selected stage, and recording is on. */
static bool is_recorded(void)
{
    if (!__atomic_load_n(&tfi_process->gen, __ATOMIC_ACQUIRE)) return false;
    if (!tfi_recording(TFI_RECORDING_ANY)) return false;
    if (tfi_config.select == TFI_SELECT_ALL) return true;
    for (struct tfi_thread *t = tfi_threads(); t; t = t->all)
        if (__atomic_load_n(&t->selected, __ATOMIC_RELAXED)) return true;
    return false;
}

/* The interval to the next look, in nanoseconds: not in step with the program's loops, and longer where a look costs more
 * than its share. */
static uint64_t interval_ns(uint64_t cost)
{
    static uint32_t seed = 1;
    uint64_t hz = tfi_config.sample_hz, share = hz <= SHARE_HZ ? SHARE : SHARE * SHARE_HZ / hz;
    if (share < LEAST_SHARE) share = LEAST_SHARE;
    uint64_t interval = 1000000000u / hz;
    if (interval < cost * share) interval = cost * share;
    if (interval > MOST_NS) interval = MOST_NS;
    seed = seed * 1664525 + 1013904223;
    return interval / 2 + (interval * (seed >> 16) >> 16);
}

static bool has_memory(void)
{
    if (!ring) ring = tfi_map(RING * sizeof *ring);
    if (!places) places = tfi_map(PLACES * sizeof *places);
    if (!seen) seen = tfi_map(MOST_SEEN * sizeof *seen);
    return ring && places && seen;
}

/* Asks for short turns, which begin soon (Linux 6.12). Otherwise, where no processor is idle, a look begins when the
 * program's thread has used up its turn or waits, and so finds what comes late in it: a function of 2 ms that had 21 % of
 * the time got 15 % of the samples. */
static void take_short_turns(void)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } turns = {.size = sizeof turns};
    if (syscall(SYS_sched_getattr, 0, &turns, sizeof turns, 0) != 0 || turns.policy != 0) return;
    turns.size = sizeof turns;
    turns.runtime = 100000;
    syscall(SYS_sched_setattr, 0, &turns, 0);
}

/* True for the first who asks: a process that ends does not wake, and one that wakes ends after that. */
static bool is_first(uint32_t who)
{
    uint32_t nobody = 0;
    return __atomic_compare_exchange_n(&waking, &nobody, who, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

static void look_once(void)
{
    bool asleep = is_asleep();
    if (slept && !asleep) { /* what was found so far counts unless a schedule decides: see put_period() */
        if (tfi_recording_switched) pause_looking();
        slept = false;
    }
    slept = asleep;
    if (asleep || is_recorded()) look_at_all();
    else pause_looking();
    if (asleep && script >= longest && is_first(WAKES)) tfi_enter_awake();
}

static void loop(struct tfi_worker *self)
{
    uint64_t due = tfi_monotonic_ns(), cost = 0;
    int status;
    longest = (uint64_t)(1e9 / tfi_clock_ns_per_tick());
    take_short_turns();
    if (!has_memory() || !tfi_outside.layout || tfi_outside.layout->gil < 0) return;
    for (;;) {
        uint32_t signals = tfi_worker_signals(self);
        uint64_t now = tfi_monotonic_ns(), before;
        if (tfi_worker_must_stop(self) || is_over() || tfi_worker_is_left_alone(self, &status)) break;
        if (now < due) {
            tfi_worker_sleep_ns(self, signals, due - now);
            continue;
        }
        before = tfi_own_cpu_ns();
        look_once();
        cost = cost - cost / 8 + (tfi_own_cpu_ns() - before) / 8;
        due += interval_ns(cost);
        if (due < now) due = now;
    }
    pause_looking();
}

/* ---- the life of the process ---- */

bool tfi_sampler_ends_asleep(unsigned ms)
{
    return !tfi_sampler_runs_asleep() || is_first(ENDS) || tfi_sampler_stop(ms);
}

void tfi_sampler_resume(void)
{
    uint32_t ends = ENDS;
    __atomic_compare_exchange_n(&waking, &ends, 0, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

void tfi_sampler_restart(void)
{
    if (owner == tfi_getpid()) return;
    tfi_worker_restart(&sampler);
    taken = written;
    lost = round_time = nr_seen = 0;
    script = waking = 0;
    slept = false;
    if (places) memset(places, 0, PLACES * sizeof *places);
    if (looking) tfi_sample_tables_lose();
    looking = false;
    owner = tfi_getpid();
}

void tfi_sampler_begin(void)
{
    if (tfi_config.select == TFI_SELECT_ALL && !tfi_config.secure) sampler.asleep_in = tfi_getpid();
    tfi_sampler_start();
}

void tfi_sampler_start(void)
{
    if (tfi_sampler_wanted() && tfi_outside.layout) tfi_worker_start(&sampler);
}

bool tfi_sampler_stop(unsigned ms)
{
    return tfi_worker_stop(&sampler, ms);
}

bool tfi_sampler_runs_asleep(void)
{
    return sampler.running && sampler.asleep_in == tfi_getpid();
}

void tfi_sampler_before_fork(void)
{
    tfi_worker_before_fork(&sampler, FORK_MS);
}

void tfi_sampler_after_fork(void)
{
    tfi_worker_after_fork(&sampler);
}
