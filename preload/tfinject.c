/* tfinject.c - controls the life of the library in a process: wake, fork, exec, exit. No other file but constructor.c does.
 *
 * The library sleeps until the first event that counts, which opens the trace. Any hook may cause that: in a signal
 * handler, in an allocator, in the child of a fork. So nothing here takes a lock of libc, of the loader or of an
 * allocator; what needs one was done in the constructor. The state lies on a page that is
 * wiped on fork, so a child, however it was made, finds itself asleep and opens its own files at its first event. Each
 * thread's state has a generation number: one compare with the process's covers asleep, forked and ended on the hot
 * path.
 *
 * The trace may end while other threads run. They see the generation gone and only forward calls. The ending thread
 * waits briefly for threads still inside the recorder. If anything can't be written to the .tfr, the .live file stays.
 */
#include <errno.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/bare_thread.h"
#include "base/files.h"
#include "base/fmt.h"
#include "base/process.h"
#include "base/sys.h"
#include "control/config.h"
#include "control/helper.h"
#include "control/machine.h"
#include "control/once.h"
#include "control/rank.h"
#include "control/samples.h"
#include "control/schedule.h"
#include "control/startup.h"
#include "control/trace.h"
#include "cuda/device_timing.h"
#include "cuda/event_times.h"
#include "cupti/client.h"
#include "flight/ring.h"
#include "io/sums.h"
#include "life.h"
#include "nvml/nvml.h"
#include "nvtx/nvtx.h"
#include "python/callstack.h"
#include "python/python.h"
#include "hang/silence.h"
#include "sample/thread_sampler.h"
#include "sample/sample_records.h"
#include "record/background.h"
#include "record/clock.h"
#include "record/cost.h"
#include "record/encode.h"
#include "record/enter.h"
#include "record/log.h"
#include "record/pool.h"
#include "record/strings.h"
#include "record/thread.h"
#include "record/upkeep.h"
#include "record/worker.h"
#include "record/writer.h"
#include "stage/stage.h"
#include "stage/timing.h"
#include "stage/unmatched_names.h"
#include "torch/torch.h"

#define TEXT_BYTES (60u << 10)
#define SAMPLER_MS 500u

static uint32_t generations;        /* given out so far, parents' included */
static bool ending;                 /* a thread is closing the trace */
static tfi_frame waker;             /* frame of the function that is opening the trace */
static uint32_t impatient;          /* a thread has waited for the opening in vain */
static uint64_t not_waited;         /* events not recorded because the trace was not open yet */
static struct tfi_thread no_thread; /* writes what a thread of the library finds at wake */

/* ---- opening the trace ---- */

static char *header_room; /* kept for the next trace */

static bool make_header_room(void)
{
    if (!header_room) header_room = tfi_map(TEXT_BYTES);
    return header_room != NULL;
}

static void describe(void)
{
    static struct tfi_text info;
    info = (struct tfi_text){header_room, TEXT_BYTES, 0, 0};
    tfi_rank_header(&info);
    tfi_text_add(&info, "live%c", 0);
    tfi_pool_place(&info);
    tfi_text_add(&info, "preloaded%c%s%c", 0, tfi_life.preloaded ? "yes" : "no", 0);
    tfi_config_header(&info);
    tfi_machine_header(&info);
    tfi_pool_publish(&info);
    tfi_writer_begin(&info);
}

static bool open_trace(void)
{
    char file[TFI_NAME_BYTES];
    if (!tfi_trace_create()) {
        /* A program that another user executes within a run may not write there: it says no more than without us. */
        bool another_user = errno == EACCES && tfi_config.inherited_dir;
        tfi_log(another_user ? TFI_LOG_INFO : TFI_LOG_WARN,
                "nothing is recorded in process %d: %s%s%s cannot be created (%s). Set TFI_OUTPUT_DIR to a directory "
                "of yours",
                tfi_trace_pid, tfi_trace_dir.path, tfi_trace_name[0] ? "/" : "", tfi_trace_name, tfi_error_name(errno));
        tfi_dir_close(&tfi_trace_dir);
        return false;
    }
    tfi_fmt(file, sizeof file, "%s.tfr", tfi_trace_name);
    tfi_states_restart();
    if (!tfi_strings_init() || !tfi_stage_init() || !make_header_room() ||
        !tfi_pool_open(&tfi_trace_dir, file, tfi_config.live_dir)) {
        tfi_writer_abandon();
        tfi_dir_close(&tfi_trace_dir);
        tfi_log(TFI_LOG_WARN, "nothing is recorded in process %d: out of memory", tfi_trace_pid);
        return false;
    }
    describe();
    tfi_run_has_trace();
    if (tfi_config.mode == TFI_MODE_FLIGHT)
        tfi_ring_begin(tfi_config.flight_mb < tfi_config.max_mb ? tfi_config.flight_mb : tfi_config.max_mb,
                       tfi_config.flight_s, tfi_config.flight_period_s);
    if (tfi_config_has_warnings() && tfi_once("warnings of the environment")) tfi_config_warn();
    tfi_log(tfi_run_dir_is_lost() ? TFI_LOG_WARN : TFI_LOG_INFO, "recording to %s/%s%s", tfi_trace_dir.path, file,
            tfi_run_dir_is_lost() ? ", because the working directory no longer exists; set TFI_OUTPUT_DIR" : "");
    tfi_dir_rest(&tfi_trace_dir);
    return true;
}

struct tfi_life tfi_life;

void tfi_before_fork(void)
{
    int cancel = tfi_cancel_off();
    bool asleep = tfi_sampler_runs_asleep();
    if (asleep) tfi_sampler_before_fork(); /* first, because it may be waking the process */
    if (tfi_process->state == TFI_AWAKE && tfi_getpid() == tfi_trace_pid) {
        tfi_nvml_before_fork(); /* before the background thread, which starts the other one */
        if (!asleep) tfi_sampler_before_fork();
        tfi_background_before_fork();
    }
    tfi_cancel_on(cancel);
}

void tfi_after_fork_parent(void)
{
    tfi_sampler_after_fork();
    tfi_nvml_after_fork();
    tfi_background_after_fork();
    tfi_cupti_after_fork();
}

/* Kernels before 4.14 don't wipe the page. A page that is empty is not written to: that would copy it. One that has this
 * process's number stays: a signal handler or another fork handler has opened the child's trace, and its thread runs. */
void tfi_after_fork_child(void)
{
    tfi_inside = 0;
    if (tfi_process_has_begun()) return;
    if (tfi_process->state || tfi_process->holder) *tfi_process = (struct tfi_process){0};
    if (tfi_cupti->phase) *tfi_cupti = (struct tfi_cupti){0};
}

/* Resets what only a trace, or a parent, leaves there: otherwise nothing is there, and each page that is written to costs
 * time. */
static void restart_used(void)
{
    tfi_log_restart();
    tfi_torch_restart();
    tfi_workers_cpu_restart();
    tfi_nvml_restart();
    tfi_ring_restart();
    tfi_v2_restart();
}

/* Resets everything that an earlier trace left in this memory: a parent's, or one that ended with a failed exec. */
static void restart(void)
{
    if (generations || tfi_getpid() != tfi_life.started_as) restart_used();
    tfi_background_restart();
    tfi_silence_restart();
    tfi_looks_restart();
    tfi_samples_restart();
    tfi_writer_restart();
    tfi_schedule_restart();
    tfi_live = NULL;
    tfi_drops = NULL;
    tfi_self = NULL;
}

/* Returns the state with which the calling thread writes. A thread of the library has none of its own. */
static struct tfi_thread *waking_thread(void)
{
    if (!tfi_bare_thread_here()) return tfi_self = tfi_thread_attach();
    tfi_lane_open(&no_thread, tfi_process->gen);
    return &no_thread;
}

static void wake(void)
{
    if (tfi_config.secure || tfi_is_helper(tfi_getpid() != tfi_life.started_as)) {
        __atomic_store_n(&tfi_process->state, TFI_OFF, __ATOMIC_RELEASE);
        return;
    }
    waker = TFI_FRAME;
    impatient = 0;
    not_waited = 0;
    tfi_clock_choose();
    uint64_t start = tfi_ticks();
    tfi_trace_pid = tfi_getpid();
    restart();
    if (!open_trace()) {
        __atomic_store_n(&tfi_process->state, TFI_OFF, __ATOMIC_RELEASE);
        return;
    }
    tfi_callstack_restart();
    tfi_cost_restart();
    tfi_clock_restart();
    __atomic_store_n(&tfi_process->gen, ++generations, __ATOMIC_RELEASE);
    __atomic_store_n(&tfi_process->state, TFI_AWAKE, __ATOMIC_RELEASE);
    if (not_waited) tfi_count_drop(TFI_DROP_LOCKED, __atomic_load_n(&not_waited, __ATOMIC_RELAXED));
    struct tfi_thread *t = waking_thread();
    if (t) {
        tfi_guard_set(t);
        struct tfi_clock_pair now = tfi_clock_read();
        tfi_clock_write(t, tfi_clock_first());
        tfi_clock_write(t, &now);
        tfi_schedule_awake(t);
        tfi_v2_awake();
        tfi_nvtx_awake(t);
        tfi_python_awake(t);
        tfi_startup_awake(t);
        tfi_samples_awake(t);
        tfi_guard_clear(t);
        if (t == &no_thread) tfi_lane_close(t);
    }
    tfi_cupti_awake();
    tfi_nvml_awake();
    tfi_silence_awake();
    tfi_looks_awake();
    tfi_cost_add(tfi_ticks() - start);
}

/* Switches recording off because a fault's handler has jumped out of wake(): there will be no trace. */
static void give_up_waking(void)
{
    uint32_t waking = TFI_WAKING;
    if (!__atomic_compare_exchange_n(&tfi_process->state, &waking, TFI_OFF, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return;
    tfi_log(TFI_LOG_WARN, "nothing is recorded in process %d: a signal handler jumped out of the opening of the trace",
            tfi_getpid());
}

/* Waits for the thread that is opening the trace, at most about a second. After one wait in vain (a file system hangs)
 * no thread waits any more: threads continue unrecorded until the trace is open. */
static bool wait_awake(void)
{
    struct timespec pause = {.tv_nsec = 200000};
    for (int i = 0; i < 5000 && !__atomic_load_n(&impatient, __ATOMIC_RELAXED); i++) {
        uint32_t state = __atomic_load_n(&tfi_process->state, __ATOMIC_ACQUIRE);
        if (state != TFI_WAKING) return state == TFI_AWAKE;
        syscall(SYS_nanosleep, &pause, NULL);
    }
    __atomic_store_n(&impatient, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&not_waited, 1, __ATOMIC_RELAXED);
    if (!tfi_frame_may_stand(waker)) give_up_waking();
    return false;
}

static bool may_wake(enum tfi_why why)
{
    return why == TFI_WHY_STAGE || (why == TFI_WHY_CALL && tfi_config.select == TFI_SELECT_ALL);
}

bool tfi_wake(enum tfi_why why)
{
    tfi_construct();
    uint32_t state = __atomic_load_n(&tfi_process->state, __ATOMIC_ACQUIRE);
    if (state == TFI_NEW && may_wake(why)) {
        tfi_process_keep();
        if (__atomic_compare_exchange_n(&tfi_process->state, &state, TFI_WAKING, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE))
            wake();
        state = __atomic_load_n(&tfi_process->state, __ATOMIC_ACQUIRE);
    }
    return state == TFI_AWAKE || (state == TFI_WAKING && wait_awake());
}

/* ---- closing it ---- */

/* Makes the guards of running threads visible to this thread. The background thread registers the process for
 * membarrier, because registering takes tens of milliseconds in a process with more than one thread. */
static void see_guards(void)
{
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0) return;
    tfi_register_barrier();
    syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

/* Waits until no other thread is inside the recorder. It pauses at most 200 times for each thread, 0.1 ms or a little
 * more each. Returns false as soon as one thread uses these up. */
static bool all_outside(void)
{
    struct timespec pause = {.tv_nsec = 100000};
    struct tfi_thread *first = tfi_threads();
    if (first && (first->all || first != tfi_self)) see_guards();
    for (struct tfi_thread *t = tfi_threads(); t; t = t->all) {
        for (int i = 0; t != tfi_self && tfi_guard_frame(t); i++) {
            if (!tfi_guard_may_hold(t)) break;
            if (i == 200) return false;
            syscall(SYS_nanosleep, &pause, NULL);
        }
    }
    return true;
}

static void write_timing(void)
{
    if (!tfi_timing_any() || tfi_writer_is_gone() || tfi_timing_write(&tfi_trace_dir, tfi_trace_name)) return;
    tfi_log(TFI_LOG_WARN, "%s/%s.timing.json cannot be written (%s); `tfanalyze report` rebuilds it from the trace",
            tfi_trace_dir.path, tfi_trace_name, tfi_error_name(errno));
}

/* Ends a process that never woke: reports the requested names that matched nothing. Forked children report nothing. Without
 * such names it asks the kernel nothing: a seccomp filter may kill at any call that the program does not make. */
static void asleep_to_the_end(const char *reason)
{
    int error = errno;
    if (!tfi_unmatched_wanted()) return;
    if (strcmp(reason, "exec") != 0 && !generations && tfi_getpid() == tfi_life.started_as)
        tfi_unmatched_report(NULL, tfi_python_here());
    errno = error;
}

/* Reports which names matched nothing, unless an exec ends the trace: then another program follows in this process. */
static void report_unmatched(const char *reason)
{
    if (strcmp(reason, "exec") != 0) tfi_unmatched_report(&tfi_trace_dir, tfi_python_here());
}

/* Writes all that follows the last record, in files. */
static void write_end(const char *reason, bool outside)
{
    write_timing();
    tfi_log_end();
    bool whole = tfi_writer_finish(reason);
    if (whole && outside) tfi_pool_remove(!tfi_run_is_mine() || strcmp(reason, "exec") == 0);
    else if (!tfi_writer_has_complained())
        tfi_log(TFI_LOG_WARN, "the end of %s/%s.tfr cannot be written; keep its .live file: tfanalyze reads both",
                tfi_trace_dir.path, tfi_trace_name);
    tfi_run_ends(reason);
}

static struct {
    struct tfi_bare_thread thread;
    const char *reason;
    bool outside;
} end;

static void write_end_there(void *data)
{
    (void)data;
    tfi_inside = 1;
    write_end(end.reason, end.outside);
}

/* Does that in a thread that has descriptors of its own, because the program has used up its own. */
static bool write_end_elsewhere(const char *reason, bool outside)
{
    enum { MOST_MS = 60000 };
    end.reason = reason;
    end.outside = outside;
    if (!tfi_bare_thread_start(&end.thread, write_end_there, NULL)) return false;
    tfi_bare_thread_wait(&end.thread, MOST_MS);
    return true;
}

void tfi_life_end(const char *reason)
{
    uint32_t awake = TFI_AWAKE;
    int error = errno, cancel;
    if (!tfi_inside) tfi_sampler_ends_asleep(SAMPLER_MS);
    if (tfi_process->state == TFI_NEW) asleep_to_the_end(reason);
    if (tfi_process->state == TFI_NEW || tfi_process->state == TFI_OFF) tfi_run_ends(reason);
    if (tfi_process->state != TFI_AWAKE || tfi_getpid() != tfi_trace_pid || tfi_inside) return;
    if (!__atomic_compare_exchange_n(&tfi_process->state, &awake, TFI_ENDED, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return;
    __atomic_store_n(&ending, true, __ATOMIC_RELAXED);
    cancel = tfi_cancel_off();
    tfi_signals_off();
    tfi_inside++;
    bool has_room = tfi_dir_hold(&tfi_trace_dir) || errno != EMFILE;
    tfi_cupti_hold();
    tfi_looks_end();
    __atomic_store_n(&tfi_process->gen, 0, __ATOMIC_SEQ_CST);
    bool outside = all_outside();
    report_unmatched(reason);
    outside &= tfi_nvml_finish();
    outside &= tfi_silence_finish();
    outside &= tfi_looks_finish();
    outside &= tfi_samples_finish();
    outside &= tfi_device_finish();
    if (outside) tfi_sums_finish();
    if (has_room || !write_end_elsewhere(reason, outside)) write_end(reason, outside);
    tfi_dir_close(&tfi_trace_dir);
    tfi_inside--;
    __atomic_store_n(&ending, false, __ATOMIC_RELEASE);
    tfi_signals_on();
    tfi_cancel_on(cancel);
    errno = error;
}

void tfi_life_resume(void)
{
    int error = errno;
    tfi_sampler_resume();
    if (tfi_process->state == TFI_ENDED && tfi_getpid() == tfi_trace_pid && !__atomic_load_n(&ending, __ATOMIC_ACQUIRE))
        __atomic_store_n(&tfi_process->state, TFI_NEW, __ATOMIC_RELEASE);
    tfi_cupti_resume();
    errno = error;
}
