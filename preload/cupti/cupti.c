/* cupti.c - device records: starts CUPTI, fetches its buffers, and ends it.
 *
 * Start. The first call that uses a device starts CUPTI, before the original is called: an existing context would
 * stall while its modules are instrumented, and existing graphs would stay unseen. Only the activity interface is
 * used, so the one subscriber's slot stays free. The kinds stay enabled for good.
 *
 * Fetching. The calling thread flushes every TFI_FLUSH_MS, once CUPTI has requested a buffer: a flush before that
 * never returns. It does not flush while another client is recording: that client's flushes serve both, and each of
 * ours would cost it a buffer. No flush is forced before the end: running work would be handed over without its end,
 * for ever.
 *
 * End. All records of the host are in the files already. The calling thread fetches CUPTI's remaining records, and
 * the thread that ends the process waits for it, at most LAST_MS. This happens in an exit handler that was registered
 * after the driver's and therefore runs before it; destructors would be too late. After that CUPTI is not called.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/process.h"
#include "base/sys.h"
#include "control/config.h"
#include "cupti/client.h"
#include "record/background.h"
#include "record/chunk.h"
#include "record/clock.h"
#include "record/log.h"
#include "stage/console.h"

#define START_MS 2000 /* the longest wait of other threads for the one that starts CUPTI */
#define LAST_MS 2000
#define REQUEST_MS 50
#define TOKEN_MS 100
#define FLUSH_HARMS 130000 /* the version that crashes in a flush */

static pid_t started_in, starter; /* process; thread */
static uint32_t calling;          /* the calling thread is in CUPTI */
static bool exit_handlers;        /* the second one is registered as well */
static bool injected;             /* the driver has loaded this library: no wrapper will be called */
static struct tfi_thread lane;    /* writes the converted records: not a thread of the program */
static uint64_t last_clock;
static bool profiled;         /* another profiler has the device */
static void (*instead)(void); /* started if CUPTI cannot be had */
static uint32_t given = 1;    /* 0: the device is being given away, but still ours */

static void nap(void)
{
    struct timespec pause = {.tv_nsec = 500000};
    syscall(SYS_nanosleep, &pause, NULL);
}

/* ---- converting ---- */

static bool take_token(unsigned ms)
{
    struct tfi_patience patience = TFI_PATIENCE(ms);
    for (;;) {
        uint32_t free = 0;
        if (__atomic_compare_exchange_n(&tfi_cupti->token, &free, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return true;
        if (!tfi_patience_slice(&patience)) return false;
        nap();
    }
}

static void give_token(void)
{
    __atomic_store_n(&tfi_cupti->token, 0, __ATOMIC_RELEASE);
}

/* Generation of the trace that records go to: the open one, or the one that is being ended; 0 if there is none. */
static uint32_t trace_gen(void)
{
    uint32_t gen = __atomic_load_n(&tfi_process->gen, __ATOMIC_ACQUIRE);
    return gen ? gen : __atomic_load_n(&tfi_cupti->gen, __ATOMIC_ACQUIRE);
}

/* With the token held. NULL if there is no trace. */
static struct tfi_thread *open_lane(void)
{
    uint32_t gen = trace_gen();
    if (!gen) return NULL;
    if (tfi_lane_open(&lane, gen)) {
        last_clock = 0;
        tfi_records_restart();
        tfi_cupti_devices_restart();
        __atomic_store_n(&tfi_cupti->gen, gen, __ATOMIC_RELEASE);
    }
    return &lane;
}

/* True if the device is another client's: CUPTI then refuses requests of our interface. False while it is being
 * given away. */
static bool is_away(void)
{
    return __atomic_load_n(&tfi_cupti_away, __ATOMIC_ACQUIRE) != 0 && __atomic_load_n(&given, __ATOMIC_ACQUIRE);
}

/* Reads the clock, because records are best converted between two readings. */
static void read_clock(struct tfi_thread *to, bool always)
{
    uint64_t now = tfi_monotonic_ms();
    if (__atomic_load_n(&tfi_cupti->quiet, __ATOMIC_ACQUIRE) || is_away()) return;
    if (!always && last_clock && now - last_clock < 50) return;
    if (tfi_cupti_clock_read(to)) last_clock = now;
}

bool tfi_cupti_watched(void)
{
    return __atomic_load_n(&profiled, __ATOMIC_RELAXED) || tfi_other_wants(TFI_CUPTI_DRIVER);
}

bool tfi_cupti_may_ask(void)
{
    return !(tfi_other_edges() & 1) && !__atomic_load_n(&tfi_cupti->quiet, __ATOMIC_ACQUIRE);
}

/* Converts one buffer that came back; false if there is none. */
static bool convert_one(void)
{
    if (!tfi_buffers_waiting() || !take_token(TOKEN_MS)) return false;
    struct tfi_thread *to = open_lane();
    struct tfi_buffer *buffer = tfi_buffers_take();
    if (buffer && to && buffer->gen == to->gen) {
        read_clock(to, false);
        tfi_records_convert(to, buffer->data, buffer->valid, true, tfi_cupti_may_ask());
    }
    if (buffer) tfi_buffers_free(buffer);
    give_token();
    return buffer != NULL;
}

static void convert_now(uint8_t *buffer, size_t valid)
{
    if (!tfi_cupti->on || !valid || !trace_gen()) return;
    if (!take_token(TOKEN_MS)) {
        tfi_count_drop(TFI_DROP_DEVICE_UNREAD, tfi_record_count(buffer, valid));
        return;
    }
    struct tfi_thread *to = open_lane();
    if (to && !last_clock) read_clock(to, true);
    if (to) tfi_records_convert(to, buffer, valid, false, false);
    give_token();
}

/* ---- fetching ---- */

static void write_clock(void)
{
    if (!take_token(TOKEN_MS)) return;
    struct tfi_thread *to = open_lane();
    if (to) read_clock(to, true);
    if (to && tfi_cupti_may_ask()) tfi_cupti_devices(to);
    give_token();
}

static void count_dropped(void)
{
    size_t dropped = 0;
    if (tfi_cupti_api.ActivityGetNumDroppedRecords(NULL, 0, &dropped) != 0 || !dropped) return;
    tfi_count_drop(TFI_DROP_DEVICE_DROPPED, dropped);
    tfi_other_dropped(dropped);
}

static void before_exit(void);

/* In the calling thread, without the token: CUPTI hands buffers back meanwhile. */
static void fetch(uint32_t flag)
{
    write_clock();
    __atomic_store_n(&calling, 1, __ATOMIC_SEQ_CST);
    tfi_cupti_api.ActivityFlushAll(flag);
    count_dropped();
    __atomic_store_n(&calling, 0, __ATOMIC_SEQ_CST);
    write_clock();
    if (!exit_handlers) exit_handlers = atexit(before_exit) == 0; /* by now the driver has registered its own handler */
}

/* True while the calling thread is in CUPTI, which may hang; the thread holds nothing of ours then. */
static bool is_calling(void)
{
    return __atomic_load_n(&calling, __ATOMIC_SEQ_CST);
}

/* Fetches all remaining records, then wakes the thread that waits for them. */
static void fetch_last(void)
{
    if (!is_away()) { /* otherwise CUPTI would hand over the other client's running work, without its end */
        tfi_kinds_switch_own(false);
        fetch(TFI_CUPTI_FLUSH_FORCED);
    }
    while (convert_one()) continue;
    __atomic_store_n(&tfi_cupti->last, 2, __ATOMIC_RELEASE);
    tfi_futex_wake(&tfi_cupti->last);
}

/* True if flushes are to be avoided. CUPTI 13.0 as first released crashes in a flush, or loses records by it,
 * while the device works; its first update does not. Decoding the hardware's own events does the same in some
 * releases and on some devices. Records then come when a buffer is full, and at the end. */
static bool flush_is_harmful(void)
{
    static uint32_t said;
    bool hes = __atomic_load_n(&tfi_cupti_hes, __ATOMIC_ACQUIRE);
    if (tfi_cupti_api.version != FLUSH_HARMS && !hes) return false;
    if (!__atomic_exchange_n(&said, 1, __ATOMIC_RELAXED))
        tfi_log(TFI_LOG_WARN,
                "device records are fetched only when a buffer is full and at exit, because %s; SIGKILL can lose them",
                hes ? "the hardware traces by itself (HES)"
                    : "CUPTI 13.0 without its first update can crash when records are fetched earlier");
    return true;
}

static bool due(void)
{
    return __atomic_load_n(&tfi_cupti->requested, __ATOMIC_ACQUIRE) && tfi_monotonic_ms() >= tfi_cupti->next_flush &&
           !(tfi_other_edges() & 1) && !is_away() && !flush_is_harmful();
}

static bool work(void)
{
    if (!tfi_cupti->on || __atomic_load_n(&tfi_cupti->quiet, __ATOMIC_ACQUIRE)) return false;
    tfi_other_own_thread();
    if (convert_one()) return true;
    if (__atomic_load_n(&tfi_cupti->last, __ATOMIC_ACQUIRE) == 1) {
        fetch_last();
        return true;
    }
    tfi_kinds_adapt();
    if (!due()) return false;
    fetch(0);
    tfi_cupti->next_flush = tfi_monotonic_ms() + tfi_config.flush_ms;
    return true;
}

static unsigned wait_at_most(unsigned most)
{
    uint64_t now = tfi_monotonic_ms(), wait = tfi_config.flush_ms;
    if (!tfi_cupti->on) return most;
    if (tfi_cupti->next_flush > now && tfi_cupti->next_flush - now < wait) wait = tfi_cupti->next_flush - now;
    return wait < most ? (unsigned)wait : most;
}

const struct tfi_job tfi_cupti_job = {.work = work, .wait = wait_at_most, .calling = is_calling};

/* ---- the beginning ---- */

/* Switches off the per-thread buffers of newer versions: more than eight threads would get the area that is
 * discarded. */
static void set_attributes(void)
{
    uint8_t off = 0;
    size_t size = sizeof off;
    if (tfi_cupti_api.version < 130000 || tfi_other_edges() & 1) return;
    tfi_cupti_api.ActivitySetAttribute(TFI_CUPTI_ATTR_PER_THREAD_BUFFER, &size, &off);
}

/* Reads the clock for records before the first fetch: they lie between this reading and the fetch's. */
static void first_pair(void)
{
    if (!take_token(TOKEN_MS)) return;
    tfi_cupti_clock_first();
    give_token();
}

/* Leaves the device to a profiler that has it: our calls of the driver would be in its records. */
static bool leave_to_profiler(void)
{
    char profiler[64];
    if (!tfi_cupti_profiler(profiler, sizeof profiler)) return false;
    instead = NULL;
    __atomic_store_n(&profiled, true, __ATOMIC_RELAXED);
    tfi_log(TFI_LOG_WARN,
            "no device records: another profiler has the device (%s); stages are still recorded. Run without that "
            "profiler to record the device",
            profiler);
    return true;
}

static bool start(void)
{
    uint64_t (*clock)(void);
    if (leave_to_profiler() || !tfi_cupti_find()) return false;
    if (!tfi_buffers_init(convert_now) || !tfi_select_init()) {
        tfi_log(TFI_LOG_WARN, "no device records: out of memory; stages are still recorded");
        return false;
    }
    if (tfi_other_clock(&clock)) tfi_cupti_clock_foreign(clock);
    set_attributes();
    tfi_cupti->on = 1;
    int result = tfi_cupti_api.ActivityRegisterCallbacks(tfi_buffers_request, tfi_buffers_complete);
    if (result != 0)
        tfi_log(TFI_LOG_WARN, "no device records: %s reports \"%s\"; stages are still recorded", tfi_cupti_api.path,
                tfi_cupti_error(result));
    if (result == 0 && tfi_kinds_enable()) {
        first_pair();
        tfi_sums_begin();
        tfi_cupti->next_flush = tfi_monotonic_ms() + tfi_config.flush_ms;
        atexit(before_exit);
        return true;
    }
    tfi_cupti->on = 0;
    return false;
}

/* Starts CUPTI unrecorded. CUPTI's calls inside ours are not the program's: its calls of the driver are forwarded,
 * like those of the runtime. */
static bool start_unseen(void)
{
    struct tfi_thread *t = tfi_self;
    if (t && (tfi_guarded(t) || t->gen != tfi_process->gen)) t = NULL;
    uint32_t outer = t ? t->runtime : 0;
    tfi_signals_off();
    tfi_inside++;
    if (t) t->runtime = ++t->calls;
    if (t && t->calls <= TFI_CALL_FRAMES) t->frame[t->calls - 1] = (uintptr_t)__builtin_frame_address(0);
    bool ok = start();
    if (t) t->calls--;
    if (t) t->runtime = outer;
    tfi_inside--;
    tfi_signals_on();
    return ok;
}

static void wait_started(void)
{
    struct tfi_patience patience = TFI_PATIENCE(START_MS);
    if (__atomic_load_n(&starter, __ATOMIC_ACQUIRE) == tfi_gettid()) return; /* called by CUPTI itself, in our start */
    while (__atomic_load_n(&tfi_cupti->phase, __ATOMIC_ACQUIRE) == TFI_CUPTI_STARTING && tfi_patience_slice(&patience))
        nap();
}

static bool wanted(void)
{
    return tfi_config.activities & TFI_ACTIVITY_GPU && tfi_cupti != &tfi_cupti_asleep &&
           (!started_in || started_in == tfi_getpid());
}

void tfi_cupti_instead(void (*begin)(void))
{
    instead = begin;
}

/* Starts CUPTI at the first use of a device. A child of a process that used a device cannot use one, and its copy
 * of CUPTI belongs to the parent. */
static void first_use(bool runtime)
{
    uint32_t phase = TFI_CUPTI_NEW;
    if (is_away()) return;
    if (!wanted()) {
        if (tfi_config.profile_debug && tfi_cupti_driver_is_loaded()) tfi_console_device_used();
        __atomic_store_n(&tfi_cupti->phase, TFI_CUPTI_OFF, __ATOMIC_RELEASE);
        return;
    }
    /* A client that records already would see our questions, and shows that CUPTI can be called. In an injection
     * the driver is being initialised: it must not be asked to do so again, and it admits CUPTI, since injections
     * exist for that. Beside another profiler it must not be asked anything. */
    char profiler[64];
    bool works = injected || tfi_other_edges() & 1 || tfi_cupti_profiler(profiler, sizeof profiler);
    enum tfi_cupti_driver driver = works ? TFI_CUPTI_DRIVER_WORKS : tfi_cupti_driver(runtime);
    if (driver == TFI_CUPTI_DRIVER_NOT_YET) return;
    if (!__atomic_compare_exchange_n(&tfi_cupti->phase, &phase, TFI_CUPTI_STARTING, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE))
        return;
    if (driver == TFI_CUPTI_DRIVER_WORKS) tfi_console_device_used();
    tfi_process_keep();
    started_in = tfi_getpid();
    __atomic_store_n(&starter, tfi_gettid(), __ATOMIC_RELEASE);
    bool ok = driver == TFI_CUPTI_DRIVER_WORKS && start_unseen();
    if (!ok && driver == TFI_CUPTI_DRIVER_WORKS && instead) instead();
    __atomic_store_n(&starter, 0, __ATOMIC_RELEASE);
    __atomic_store_n(&tfi_cupti->phase, ok ? TFI_CUPTI_WAITING : TFI_CUPTI_OFF, __ATOMIC_RELEASE);
}

TFI_COLD void tfi_cupti_begin(bool runtime)
{
    int error = errno;
    uint32_t phase = __atomic_load_n(&tfi_cupti->phase, __ATOMIC_ACQUIRE);
    if (phase == TFI_CUPTI_WAITING && !__atomic_load_n(&tfi_process->gen, __ATOMIC_RELAXED)) return;
    int cancel = tfi_cancel_off();
    if (phase == TFI_CUPTI_NEW) first_use(runtime);
    if (__atomic_load_n(&tfi_cupti->phase, __ATOMIC_ACQUIRE) == TFI_CUPTI_STARTING) wait_started();
    phase = TFI_CUPTI_WAITING;
    if (__atomic_load_n(&tfi_cupti->phase, __ATOMIC_ACQUIRE) == phase && tfi_process->gen && tfi_caller_start())
        __atomic_compare_exchange_n(&tfi_cupti->phase, &phase, TFI_CUPTI_READY, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_RELAXED);
    tfi_cancel_on(cancel);
    errno = error;
}

void tfi_cupti_injected(void)
{
    injected = true;
    tfi_cupti_begin(false);
}

/* Only an injected library starts here: otherwise the next wrapper does it. */
void tfi_cupti_awake(void)
{
    if (injected) tfi_cupti_begin(false);
}

/* Flushes the records that are complete; running work comes with a later flush of any client. The clock is read
 * while that is possible, because buffers may be converted when it is not. */
void tfi_cupti_step_aside(void)
{
    if (__atomic_load_n(&tfi_cupti->phase, __ATOMIC_ACQUIRE) == TFI_CUPTI_STARTING) wait_started();
    if (!tfi_cupti->on || tfi_getpid() != started_in || __atomic_load_n(&tfi_cupti->quiet, __ATOMIC_ACQUIRE)) return;
    __atomic_store_n(&given, 0, __ATOMIC_RELEASE);
    tfi_kinds_disable();
    write_clock();
    if (__atomic_load_n(&tfi_cupti->requested, __ATOMIC_ACQUIRE)) tfi_cupti_api.ActivityFlushAll(0);
    write_clock();
    __atomic_store_n(&given, 1, __ATOMIC_RELEASE);
}

void tfi_cupti_step_back(void)
{
    tfi_cupti_awake();
    if (!tfi_cupti->on || tfi_getpid() != started_in || __atomic_load_n(&tfi_cupti->quiet, __ATOMIC_ACQUIRE)) return;
    tfi_cupti_api.ActivityRegisterCallbacks(tfi_buffers_request, tfi_buffers_complete);
    tfi_kinds_enable();
}

void tfi_cupti_after_fork(void)
{
    uint32_t ready = TFI_CUPTI_READY;
    __atomic_compare_exchange_n(&tfi_cupti->phase, &ready, TFI_CUPTI_WAITING, false, __ATOMIC_ACQ_REL,
                                __ATOMIC_RELAXED);
    tfi_cupti_awake();
}

/* ---- the end ---- */

/* Waits a moment for CUPTI's first request of a buffer: it may come in a thread of CUPTI's own, after the call. */
static bool was_requested(void)
{
    struct tfi_patience patience = TFI_PATIENCE(REQUEST_MS);
    while (!__atomic_load_n(&tfi_cupti->requested, __ATOMIC_ACQUIRE) && tfi_patience_slice(&patience)) nap();
    return __atomic_load_n(&tfi_cupti->requested, __ATOMIC_ACQUIRE);
}

/* Asks the calling thread for the remaining records and waits for them. */
static void last_flush(void)
{
    uint32_t none = 0;
    if (!tfi_cupti->on || tfi_getpid() != started_in || !trace_gen()) return;
    if (!__atomic_compare_exchange_n(&tfi_cupti->last, &none, 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return;
    if (was_requested() && tfi_caller_start()) {
        struct tfi_patience patience = TFI_PATIENCE(LAST_MS);
        uint64_t slice;
        tfi_caller_signal();
        while (__atomic_load_n(&tfi_cupti->last, __ATOMIC_ACQUIRE) == 1 && (slice = tfi_patience_slice(&patience)))
            tfi_futex_wait_ns(&tfi_cupti->last, 1, slice);
        if (__atomic_load_n(&tfi_cupti->last, __ATOMIC_ACQUIRE) == 1)
            tfi_log(TFI_LOG_WARN, "CUPTI did not return its last device records within %u ms; the trace may lack them",
                    LAST_MS);
    }
    __atomic_store_n(&tfi_cupti->quiet, 1, __ATOMIC_SEQ_CST);
}

static void before_exit(void)
{
    int error = errno;
    last_flush();
    errno = error;
}

void tfi_cupti_hold(void)
{
    if (tfi_cupti->on) __atomic_store_n(&tfi_cupti->gen, tfi_process->gen, __ATOMIC_RELEASE);
}

bool tfi_cupti_finish(void)
{
    if (tfi_getpid() != started_in) return true;
    last_flush();
    while (convert_one()) continue;
    if (tfi_buffers_out()) tfi_count_drop(TFI_DROP_DEVICE_KEPT, tfi_buffers_out());
    if (!take_token(TOKEN_MS)) return false;
    if (lane.gen && lane.gen == tfi_cupti->gen) tfi_chunk_close(&lane);
    lane.gen = 0;
    __atomic_store_n(&tfi_cupti->gen, 0, __ATOMIC_RELEASE);
    give_token();
    return true;
}

void tfi_cupti_resume(void)
{
    uint32_t ready = TFI_CUPTI_READY;
    if (!tfi_cupti->on || tfi_getpid() != started_in) return;
    tfi_cupti->last = tfi_cupti->quiet = 0;
    if (!is_away()) tfi_kinds_switch_own(true);
    __atomic_compare_exchange_n(&tfi_cupti->phase, &ready, TFI_CUPTI_WAITING, false, __ATOMIC_ACQ_REL,
                                __ATOMIC_RELAXED);
}
