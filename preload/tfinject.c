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
#include <dlfcn.h>
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
#include "files.h"
#include "fmt.h"
#include "helper.h"
#include "hooks.h"
#include "log.h"
#include "nvtx.h"
#include "python.h"
#include "rank.h"
#include "schedule.h"
#include "stderr.h"
#include "strings.h"
#include "sys.h"
#include "thread.h"
#include "timing.h"
#include "torch.h"
#include "unmatched.h"
#include "writer.h"

#define TEXT_BYTES (60u << 10)

static struct tfi_process before_constructor;
static size_t page_bytes; /* 0: there is no page, or it is marked */
struct tfi_process *tfi_process = &before_constructor;

static pid_t pid;              /* of the process that opened the trace */
static pid_t started_as;       /* the process that loaded the library, whose children by fork have another one */
static uint32_t generations;   /* given out so far, parents' included */
static struct tfi_dir run_dir; /* where the trace lies */
static char trace_name[TFI_NAME_BYTES]; /* its name without .tfr */
static bool ending;                     /* a thread is closing the trace */
static uint64_t cost_ticks;
static double record_ns;
static tfi_frame waker;     /* of the function that is opening the trace */
static uint32_t impatient;  /* a thread has waited for that in vain */
static uint64_t not_waited; /* events that were not recorded for it */

/* ---- counting ---- */

void tfi_count_drop(int drop, uint64_t count)
{
    if (tfi_live) __atomic_add_fetch(&tfi_live->drops[drop], count, __ATOMIC_RELAXED);
}

int tfi_trace_pid(void)
{
    return pid;
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

static bool is_taken(const char *name)
{
    static const char *const others[] = {".live", ".timing.json"};
    char full[TFI_NAME_BYTES];
    for (size_t i = 0; i < TFI_COUNT(others); i++) {
        tfi_fmt(full, sizeof full, "%s%s%s", name, i == 0 ? ".tfr" : "", others[i]);
        if (tfi_dir_has(&run_dir, full)) return true;
    }
    return false;
}

/* A name that is taken (exec keeps the pid) gets a number: nothing is overwritten. */
static bool create_trace(void)
{
    char number[16] = "", file[TFI_NAME_BYTES];
    for (unsigned n = 1; n < 1000; n++) {
        if (n > 1) tfi_fmt(number, sizeof number, ".%u", n);
        tfi_fmt(trace_name, sizeof trace_name, "rank%u.%s.%u%s", tfi_rank(), tfi_host(), (unsigned)pid, number);
        tfi_fmt(file, sizeof file, "%s.tfr", trace_name);
        if (is_taken(trace_name)) continue;
        if (tfi_writer_open(&run_dir, file)) return true;
        if (errno != EEXIST) return false;
    }
    return false;
}

static char *header_room; /* of two texts; kept for the next trace */

static bool make_header_room(void)
{
    if (!header_room) header_room = tfi_map(2 * TEXT_BYTES);
    return header_room != NULL;
}

static void describe(void)
{
    static struct tfi_text info, schema;
    info = (struct tfi_text){header_room, TEXT_BYTES, 0, 0};
    schema = (struct tfi_text){header_room + TEXT_BYTES, TEXT_BYTES, 0, 0};
    tfi_rank_header(&info);
    tfi_text_add(&info, "live%c", 0);
    tfi_pool_place(&info);
    tfi_config_header(&info);
    tfi_schema(&schema);
    tfi_pool_publish(&info, &schema);
    tfi_writer_begin(&info, &schema);
}

static bool open_trace(void)
{
    char file[TFI_NAME_BYTES];
    if (!tfi_run_dir_make(&run_dir) || !create_trace()) {
        tfi_log(TFI_LOG_WARN,
                "nothing is recorded in process %d: %s%s%s: %s. Set TFI_OUTPUT_DIR to a directory of yours", pid,
                run_dir.path, trace_name[0] ? "/" : "", trace_name, tfi_error_name(errno));
        tfi_dir_close(&run_dir);
        return false;
    }
    tfi_fmt(file, sizeof file, "%s.tfr", trace_name);
    tfi_threads_init();
    if (!tfi_strings_init() || !tfi_stage_init() || !make_header_room() || !tfi_pool_open(&run_dir, file)) {
        tfi_writer_abandon();
        tfi_dir_close(&run_dir);
        tfi_log(TFI_LOG_WARN, "nothing is recorded in process %d: no memory", pid);
        return false;
    }
    describe();
    if (tfi_config_has_warnings() && tfi_run_dir_claim(&run_dir, ".warned")) tfi_config_warn();
    tfi_log(TFI_LOG_INFO, "recording to %s/%s", run_dir.path, file);
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
    tfi_v2_restart();
    tfi_live = NULL;
    tfi_self = NULL;
    cost_ticks = 0;
    trace_name[0] = 0;
}

/* quick_exit ends by libc's own _exit, which does not pass our hook. */
static void at_quick(void)
{
    tfi_finish("quick_exit");
}

static void wake(void)
{
    static bool once;
    if (tfi_is_helper()) {
        __atomic_store_n(&tfi_process->state, TFI_OFF, __ATOMIC_RELEASE);
        return;
    }
    waker = TFI_FRAME;
    impatient = 0;
    not_waited = 0;
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
    if (not_waited) tfi_count_drop(TFI_DROP_LOCKED, __atomic_load_n(&not_waited, __ATOMIC_RELAXED));
    struct tfi_thread *t = tfi_self = tfi_thread_attach();
    if (t) {
        tfi_guard_set(t);
        struct tfi_clock_pair now = tfi_clock_read();
        tfi_clock_write(t, tfi_clock_first());
        tfi_clock_write(t, &now);
        tfi_schedule_awake(t);
        tfi_v2_awake();
        tfi_nvtx_awake(t);
        tfi_python_awake(t);
        tfi_guard_clear(t);
    }
    tfi_cupti_awake();
    tfi_cost_add(tfi_ticks() - start);
}

static void constructor(void);

/* A fault's handler has jumped out of it: there will be no trace. */
static void give_up_waking(void)
{
    uint32_t waking = TFI_WAKING;
    if (!__atomic_compare_exchange_n(&tfi_process->state, &waking, TFI_OFF, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return;
    tfi_log(TFI_LOG_WARN, "nothing is recorded in process %d: a jump has left the opening of the trace", tfi_getpid());
}

/* Waits for the thread that is opening the trace. If that takes long, on a file system that hangs, nobody waits any
 * more: threads go on without until it is open. */
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

/* The calling thread's state where it has none that counts; NULL if it gets none. */
static TFI_COLD struct tfi_thread *attach(enum tfi_why why)
{
    int error = errno;
    struct tfi_thread *t = NULL;
    if (tfi_inside) {
        if (tfi_process->gen) tfi_count_drop(TFI_DROP_REENTRANT, 1); /* asleep, the counters may be a parent's */
        return NULL;
    }
    tfi_signals_off();
    tfi_inside++;
    constructor();
    uint32_t state = __atomic_load_n(&tfi_process->state, __ATOMIC_ACQUIRE);
    if (state == TFI_NEW && may_wake(why)) {
        tfi_process_keep();
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
    tfi_signals_on();
    errno = error;
    return t;
}

struct tfi_thread *tfi_enter_from(enum tfi_why why, tfi_frame frame)
{
    struct tfi_thread *t = tfi_self;
    int cancel;
    if (TFI_UNLIKELY(!t || t->gen != __atomic_load_n(&tfi_process->gen, __ATOMIC_RELAXED))) {
        cancel = tfi_cancel_off();
        t = attach(why);
        tfi_cancel_on(cancel);
        if (!t) return NULL;
    }
    if (TFI_UNLIKELY(tfi_guard_frame(t) != 0) && tfi_guard_holds(t, frame[0])) {
        tfi_count_drop(TFI_DROP_REENTRANT, 1);
        return NULL;
    }
    cancel = tfi_cancel_off();
    tfi_guard_put(t, frame);
    t->cancel = cancel; /* a signal handler that came before the guard has had its own there */
    if (TFI_LIKELY(t->gen == __atomic_load_n(&tfi_process->gen, __ATOMIC_RELAXED))) return t;
    tfi_leave(t); /* ended in between */
    return NULL;
}

void tfi_leave(struct tfi_thread *t)
{
    int cancel = t->cancel;
    t->cancel = -1;
    tfi_guard_clear(t);
    tfi_cancel_on(cancel);
}

/* ---- closing it ---- */

/* Makes the guards of threads that run now visible here. The process is registered for that by the background thread,
 * because where there is more than one thread it takes tens of milliseconds. */
static void see_guards(void)
{
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0) return;
    tfi_register_barrier();
    syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

/* Waits for threads that are inside the recorder; true if none is left there. */
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

void tfi_timing_path(char *path, size_t size)
{
    *path = 0;
    if (tfi_process->state == TFI_AWAKE && tfi_getpid() == pid)
        tfi_fmt(path, size, "%s/%s.timing.json", run_dir.path, trace_name);
}

static void write_timing(void)
{
    if (!tfi_timing_any() || tfi_writer_is_gone() || tfi_timing_write(&run_dir, trace_name)) return;
    tfi_log(TFI_LOG_WARN, "%s/%s.timing.json can't be written (%s)", run_dir.path, trace_name, tfi_error_name(errno));
}

/* The end of the program that was started here, if nothing ever woke it: what was asked for and is missing. */
static void asleep_to_the_end(const char *reason)
{
    int error = errno;
    if (strcmp(reason, "exec") != 0 && !generations && tfi_getpid() == started_as) tfi_unmatched_report(NULL);
    errno = error;
}

/* Says which names matched nothing, unless another program follows in this process. */
static void report_unmatched(const char *reason)
{
    if (strcmp(reason, "exec") != 0) tfi_unmatched_report(&run_dir);
}

void tfi_finish(const char *reason)
{
    uint32_t awake = TFI_AWAKE;
    int error = errno, cancel;
    if (tfi_process->state == TFI_NEW) asleep_to_the_end(reason);
    if (tfi_process->state != TFI_AWAKE || tfi_getpid() != pid || tfi_inside) return;
    if (!__atomic_compare_exchange_n(&tfi_process->state, &awake, TFI_ENDED, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return;
    __atomic_store_n(&ending, true, __ATOMIC_RELAXED);
    cancel = tfi_cancel_off();
    tfi_signals_off();
    tfi_inside++;
    tfi_cupti_hold();
    __atomic_store_n(&tfi_process->gen, 0, __ATOMIC_SEQ_CST);
    bool outside = all_outside();
    report_unmatched(reason);
    outside &= tfi_cupti_finish();
    write_timing();
    bool whole = tfi_writer_finish(reason);
    if (whole && outside) tfi_pool_remove();
    else if (!tfi_writer_has_complained())
        tfi_log(TFI_LOG_WARN, "the end of %s/%s.tfr could not be written; keep its .live file, tfanalyze reads both",
                run_dir.path, trace_name);
    tfi_dir_close(&run_dir);
    tfi_inside--;
    __atomic_store_n(&ending, false, __ATOMIC_RELEASE);
    tfi_signals_on();
    tfi_cancel_on(cancel);
    errno = error;
}

void tfi_resume(void)
{
    int error = errno;
    if (tfi_process->state == TFI_ENDED && tfi_getpid() == pid && !__atomic_load_n(&ending, __ATOMIC_ACQUIRE))
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
        page_bytes = (size_t)sysconf(_SC_PAGESIZE);
        *page = *tfi_process;
        __atomic_store_n(&tfi_process, page, __ATOMIC_RELEASE);
        __atomic_store_n(&tfi_cupti, (struct tfi_cupti *)(page + 16), __ATOMIC_RELEASE); /* the same page has room */
    }
    tfi_stderr_init();
    started_as = tfi_getpid();
    tfi_config_read();
    tfi_schedule_init();
    tfi_clock_init();
    tfi_dl_constructor();
    tfi_run_dir_pass_on();
    tfi_callstack_constructor();
    tfi_nvtx_constructor();
    tfi_python_constructor();
}

/* Not in the constructor: a process that stays asleep makes no system call that could be forbidden to it. */
void tfi_process_keep(void)
{
    size_t bytes = __atomic_load_n(&page_bytes, __ATOMIC_ACQUIRE);
    if (TFI_LIKELY(!bytes)) return;
    madvise(tfi_process, bytes, MADV_WIPEONFORK);
    __atomic_store_n(&page_bytes, 0, __ATOMIC_RELEASE);
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

extern int tfi_range_push(const char *name); /* api.c */

/* True if the program is bound to another copy of this library. */
static bool another_is_preloaded(void)
{
    void *program = dlopen(NULL, RTLD_LAZY), *bound = program ? tfi_dlsym(program, "tfi_range_push") : NULL;
    return bound && bound != (void *)tfi_range_push;
}

/* Where CUDA_INJECTION64_PATH names this library the driver opens it in cuInit and calls this; the constructor has run by
 * then. Where it is preloaded as well its wrappers see all that comes. Else nothing calls them, and this is the one moment
 * to start CUPTI, and to wake if all is selected: the driver is loaded, and no context exists yet. */
TFI_EXPORT int InitializeInjection(void);
int InitializeInjection(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD); /* none: somebody else has called this */
    if (!driver || tfi_dl_is_preloaded() || another_is_preloaded()) return 1;
    tfi_cupti_injected();
    struct tfi_thread *t = tfi_enter(TFI_WHY_CALL);
    if (t) tfi_leave(t);
    return 1;
}
