/* tfinject.c - the life of the library in a process: constructor, wake, fork, exec, exit. No other file has any of it.
 *
 * Asleep until something happens: the constructor reads the environment and the clock, passes the run directory on and
 * touches nothing else. The first event that counts opens the trace. The state lies on a page that is wiped on fork, so
 * a child, however it was made, finds itself asleep and opens files of its own at its first event. A generation number
 * says whose a thread's state is: one compare on the hot path covers asleep, forked, ended.
 *
 * The end may come while other threads run. They see the generation gone and only forward; those still inside the
 * recorder are waited for, briefly. If anything can't be brought to the .tfr, the .live file is left in its place.
 */
#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "callstack.h"
#include "chunk.h"
#include "clock.h"
#include "config.h"
#include "cupti_client.h"
#include "dl.h"
#include "encode.h"
#include "fmt.h"
#include "hooks.h"
#include "log.h"
#include "nvtx.h"
#include "python.h"
#include "rank.h"
#include "schedule.h"
#include "strings.h"
#include "sys.h"
#include "thread.h"
#include "torch.h"
#include "writer.h"

#define TEXT_BYTES (60u << 10)

static struct tfi_process before_constructor;
struct tfi_process *tfi_process = &before_constructor;

static pid_t pid;            /* of the process that opened the trace */
static uint32_t generations; /* given out so far, parents' included */
static char trace_path[4096];
static uint64_t cost_ticks;
static double record_ns;

/* ---- counting ---- */

void tfi_count_drop(int drop, uint64_t count)
{
    if (tfi_live) __atomic_add_fetch(&tfi_live->drops[drop], count, __ATOMIC_RELAXED);
}

void tfi_cost_add(uint64_t ticks)
{
    __atomic_add_fetch(&cost_ticks, ticks, __ATOMIC_RELAXED);
}

uint64_t tfi_cost_ticks(void)
{
    return __atomic_load_n(&cost_ticks, __ATOMIC_RELAXED);
}

double tfi_cost_record_ns(void)
{
    return record_ns;
}

/* A record costs two readings of the counter and about as long again for a third of one; an estimate, for `info`. */
static void measure_cost(void)
{
    enum { READS = 64 };
    uint64_t start = tfi_ticks(), end = start;
    for (int i = 0; i < READS; i++) end = tfi_ticks();
    record_ns = (double)(end - start) * tfi_clock_ns_per_tick() / READS * 2.3;
}

/* ---- opening the trace ---- */

/* A name that is taken (exec keeps the pid) gets a number: nothing is overwritten. */
static bool create_trace(const char *dir)
{
    for (unsigned n = 1; n < 1000; n++) {
        char number[16] = "";
        if (n > 1) tfi_fmt(number, sizeof number, ".%u", n);
        tfi_fmt(trace_path, sizeof trace_path, "%s/rank%u.%s.%u%s.tfr", dir, tfi_rank(), tfi_host(), (unsigned)pid,
                number);
        if (tfi_writer_open(trace_path)) return true;
        if (errno != EEXIST) return false;
    }
    return false;
}

static bool describe(const char *place)
{
    static struct tfi_text info, schema;
    char *room = info.data ? info.data : tfi_map(2 * TEXT_BYTES);
    if (!room) return false;
    info = (struct tfi_text){room, TEXT_BYTES, 0, 0};
    schema = (struct tfi_text){room + TEXT_BYTES, TEXT_BYTES, 0, 0};
    tfi_rank_header(&info);
    tfi_text_add(&info, "live%c", 0);
    tfi_text_bytes(&info, place, strlen(place) + 1);
    tfi_config_header(&info);
    tfi_schema(&schema);
    tfi_pool_publish(&info, &schema);
    tfi_writer_begin(&info, &schema);
    return true;
}

static bool open_trace(void)
{
    char dir[3072], place[4096];
    if (!tfi_run_dir_make(dir, sizeof dir) || !create_trace(dir)) {
        tfi_log(TFI_LOG_WARN, "nothing is recorded in process %d: %s: %s. Set TFI_OUTPUT_DIR to a directory of yours",
                pid, trace_path[0] ? trace_path : dir, tfi_error_name(errno));
        return false;
    }
    tfi_threads_init();
    if (!tfi_strings_init() || !tfi_stage_init() || !tfi_pool_open(trace_path, place, sizeof place) ||
        !describe(place)) {
        tfi_log(TFI_LOG_WARN, "nothing is recorded in process %d: no memory", pid);
        return false;
    }
    if (tfi_config_has_warnings() && tfi_run_dir_claim(dir)) tfi_config_warn();
    tfi_log(TFI_LOG_INFO, "recording to %s", trace_path);
    return true;
}

static void before_fork(void)
{
    if (tfi_process->state == TFI_AWAKE && tfi_getpid() == pid) tfi_writer_before_fork();
}

static void after_fork_parent(void)
{
    tfi_writer_after_fork();
    tfi_cupti_after_fork();
}

/* Kernels before 4.14 don't wipe the page. */
static void after_fork_child(void)
{
    *tfi_process = (struct tfi_process){0};
    *tfi_cupti = (struct tfi_cupti){0};
    tfi_inside = 0;
}

/* Everything of an earlier life in this memory: a parent's, or one that ended with an exec that failed. */
static void restart(void)
{
    tfi_log_restart();
    tfi_torch_restart();
    tfi_writer_restart();
    tfi_schedule_restart();
    tfi_live = NULL;
    tfi_self = NULL;
    cost_ticks = 0;
    trace_path[0] = 0;
}

/* quick_exit ends by libc's own _exit, which does not pass our hook. */
static void at_quick(void)
{
    tfi_finish("quick_exit");
}

static void wake(void)
{
    static bool once;
    tfi_clock_choose();
    uint64_t start = tfi_ticks();
    pid = tfi_getpid();
    restart();
    if (!once) {
        (void)at_quick_exit(at_quick);
        pthread_atfork(before_fork, after_fork_parent, after_fork_child);
        once = true;
    }
    if (!open_trace()) {
        __atomic_store_n(&tfi_process->state, TFI_OFF, __ATOMIC_RELEASE);
        return;
    }
    tfi_callstack_restart();
    measure_cost();
    tfi_clock_restart();
    __atomic_store_n(&tfi_process->gen, ++generations, __ATOMIC_RELEASE);
    __atomic_store_n(&tfi_process->state, TFI_AWAKE, __ATOMIC_RELEASE);
    struct tfi_thread *t = tfi_self = tfi_thread_attach();
    if (t) {
        t->guard = 1;
        struct tfi_clock_pair now = tfi_clock_read();
        tfi_clock_write(t, tfi_clock_first());
        tfi_clock_write(t, &now);
        tfi_schedule_awake(t);
        tfi_nvtx_awake(t);
        tfi_python_awake(t);
        t->guard = 0;
    }
    tfi_cost_add(tfi_ticks() - start);
}

static void constructor(void);

/* Waits for the thread that is opening the trace; if that hangs, this thread goes on without. */
static bool wait_awake(void)
{
    struct timespec pause = {.tv_nsec = 200000};
    for (int i = 0; i < 5000; i++) {
        uint32_t state = __atomic_load_n(&tfi_process->state, __ATOMIC_ACQUIRE);
        if (state != TFI_WAKING) return state == TFI_AWAKE;
        syscall(SYS_nanosleep, &pause, NULL);
    }
    return false;
}

static bool may_wake(enum tfi_why why)
{
    return why == TFI_WHY_STAGE || (why == TFI_WHY_CALL && tfi_config.select == TFI_SELECT_ALL);
}

/* The calling thread's state where it has none that counts; NULL if it gets none. */
static TFI_COLD struct tfi_thread *attach(enum tfi_why why)
{
    int error = errno;
    struct tfi_thread *t = NULL;
    if (tfi_inside) {
        if (tfi_process->gen) tfi_count_drop(TFI_DROP_REENTRANT, 1); /* asleep, the counters may be a parent's */
        return NULL;
    }
    tfi_inside++;
    constructor();
    uint32_t state = __atomic_load_n(&tfi_process->state, __ATOMIC_ACQUIRE);
    if (state == TFI_NEW && may_wake(why)) {
        if (__atomic_compare_exchange_n(&tfi_process->state, &state, TFI_WAKING, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE))
            wake();
        state = __atomic_load_n(&tfi_process->state, __ATOMIC_ACQUIRE);
    }
    if (state == TFI_WAKING && wait_awake()) state = TFI_AWAKE;
    if (state == TFI_AWAKE) {
        t = tfi_self;
        if (!t || t->gen != tfi_process->gen) t = tfi_thread_attach();
    }
    tfi_inside--;
    errno = error;
    return t;
}

struct tfi_thread *tfi_enter(enum tfi_why why)
{
    struct tfi_thread *t = tfi_self;
    int cancel;
    if (TFI_UNLIKELY(!t || t->gen != __atomic_load_n(&tfi_process->gen, __ATOMIC_RELAXED))) {
        cancel = tfi_cancel_off();
        t = attach(why);
        tfi_cancel_on(cancel);
        if (!t) return NULL;
    }
    if (t->guard) {
        tfi_count_drop(TFI_DROP_REENTRANT, 1);
        return NULL;
    }
    cancel = tfi_cancel_off();
    t->guard = 1;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    t->cancel = cancel; /* a signal handler that came before the guard has had its own there */
    if (TFI_LIKELY(t->gen == __atomic_load_n(&tfi_process->gen, __ATOMIC_RELAXED))) return t;
    tfi_leave(t); /* ended in between */
    return NULL;
}

void tfi_leave(struct tfi_thread *t)
{
    int cancel = t->cancel;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    t->guard = 0;
    tfi_cancel_on(cancel);
}

/* ---- closing it ---- */

/* Waits for threads that are inside the recorder; true if none is left there. */
static bool all_outside(void)
{
    struct timespec pause = {.tv_nsec = 100000};
    syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
    for (struct tfi_thread *t = tfi_threads(); t; t = t->all) {
        for (int i = 0; t != tfi_self && __atomic_load_n(&t->guard, __ATOMIC_ACQUIRE); i++) {
            if (i == 200) return false;
            syscall(SYS_nanosleep, &pause, NULL);
        }
    }
    return true;
}

static void write_timing(void)
{
    char path[4096 + 16];
    size_t size = 1u << 20;
    struct tfi_text text = {tfi_map(size), size, 0, 0};
    if (!text.data) return;
    tfi_fmt(path, sizeof path, "%s", trace_path);
    tfi_fmt(path + strlen(path) - 4, sizeof path - strlen(path) + 4, ".timing.json");
    tfi_text_add(&text, "{\n  \"rank\": %u,\n  \"world\": %u,\n  \"host\": ", tfi_rank(), tfi_world());
    tfi_text_json(&text, tfi_host(), strlen(tfi_host()));
    tfi_text_add(&text, ",\n  \"pid\": %d,\n  \"pipeline\": ", pid);
    tfi_text_json(&text, tfi_config.pipeline, strlen(tfi_config.pipeline));
    tfi_text_add(&text, ",\n  \"wall_clock_ms\": ");
    tfi_text_ms(&text, (uint64_t)((double)(tfi_ticks() - tfi_live->ticks) * tfi_clock_ns_per_tick()));
    tfi_text_add(&text, ",\n  ");
    tfi_stage_report(&text);
    tfi_text_add(&text, "\n}\n");
    if (text.full || !tfi_replace_file(path, text.data, text.used))
        tfi_log(TFI_LOG_WARN, "%s can't be written (%s)", path, text.full ? "too many stages" : tfi_error_name(errno));
    munmap(text.data, size);
}

void tfi_finish(const char *reason)
{
    uint32_t awake = TFI_AWAKE;
    int error = errno, cancel;
    if (tfi_process->state != TFI_AWAKE || tfi_getpid() != pid || tfi_inside) return;
    if (!__atomic_compare_exchange_n(&tfi_process->state, &awake, TFI_ENDED, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return;
    cancel = tfi_cancel_off();
    tfi_inside++;
    tfi_cupti_hold();
    __atomic_store_n(&tfi_process->gen, 0, __ATOMIC_SEQ_CST);
    bool outside = all_outside();
    if (tfi_stage_any()) write_timing();
    outside &= tfi_cupti_finish();
    bool whole = tfi_writer_finish(reason);
    if (whole && outside) tfi_pool_remove();
    else if (!tfi_writer_has_complained())
        tfi_log(TFI_LOG_WARN, "the end of %s could not be written; keep its .live file, tfanalyze reads both",
                trace_path);
    tfi_inside--;
    tfi_cancel_on(cancel);
    errno = error;
}

void tfi_resume(void)
{
    int error = errno;
    if (tfi_process->state == TFI_ENDED && tfi_getpid() == pid)
        __atomic_store_n(&tfi_process->state, TFI_NEW, __ATOMIC_RELEASE);
    tfi_cupti_resume();
    errno = error;
}

/* ---- the library's own beginning and end ---- */

/* Other libraries' constructors may call into us first, so this may run from there; it does its work once. */
static void constructor(void)
{
    static bool done;
    if (done) return;
    done = true;
    struct tfi_process *page = tfi_map((size_t)sysconf(_SC_PAGESIZE));
    if (page) {
        madvise(page, (size_t)sysconf(_SC_PAGESIZE), MADV_WIPEONFORK);
        *page = *tfi_process;
        __atomic_store_n(&tfi_process, page, __ATOMIC_RELEASE);
        __atomic_store_n(&tfi_cupti, (struct tfi_cupti *)(page + 16), __ATOMIC_RELEASE); /* the same page has room */
    }
    /* For all_outside(). Here it takes microseconds; with more than one thread it takes tens of milliseconds. */
    syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
    tfi_log_init();
    tfi_config_read();
    tfi_schedule_init();
    tfi_clock_init();
    tfi_dl_constructor();
    tfi_run_dir_pass_on();
    tfi_nvtx_constructor();
    tfi_python_constructor();
}

void tfi_prepare(void)
{
    int error = errno;
    constructor();
    errno = error;
}

__attribute__((constructor)) static void load(void)
{
    tfi_prepare();
}

__attribute__((destructor)) static void unload(void)
{
    tfi_finish("exit");
}

/* Where CUDA_INJECTION64_PATH names this library the driver opens it and calls this; the constructor has run by then. */
TFI_EXPORT int InitializeInjection(void);
int InitializeInjection(void)
{
    return 1;
}
