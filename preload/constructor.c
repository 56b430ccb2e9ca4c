/* constructor.c - begins and ends the library's life in a process: the constructor, the injection, the destructor.
 *
 * The constructor reads the environment and the clock, passes the run directory on, and registers handlers. All that
 * takes a lock of libc or of the loader happens here, because a hook may run where such a lock is held for ever: in a
 * signal handler, or in the child of a fork.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/bare_thread.h"
#include "base/objects.h"
#include "base/process.h"
#include "base/raw_dlsym.h"
#include "base/stderr.h"
#include "base/sys.h"
#include "control/config.h"
#include "control/once.h"
#include "control/rank.h"
#include "control/samples.h"
#include "control/schedule.h"
#include "cuda/device_timing.h"
#include "cuda/event_times.h"
#include "cuda/sync_stages.h"
#include "cupti/client.h"
#include "hang/silence.h"
#include "sample/sample_records.h"
#include "flight/ring.h"
#include "hooks/dl.h"
#include "hooks/host_blocks.h"
#include "io/io.h"
#include "io/child_processes.h"
#include "life.h"
#include "nccl/plugin.h"
#include "nvml/nvml.h"
#include "nvtx/nvtx.h"
#include "python/callstack.h"
#include "python/python.h"
#include "record/background.h"
#include "record/clock.h"
#include "record/enter.h"
#include "record/thread.h"
#include "record/worker.h"
#include "record/writer.h"
#include "stage/console.h"

/* Jobs of the background thread, in the order in which it asks them, and those that call other libraries. */
static const struct tfi_job *const own_jobs[] = {&tfi_schedule_job, &tfi_writer_job,  &tfi_ring_job,
                                                 &tfi_silence_job,  &tfi_samples_job, &tfi_looks_job};
static const struct tfi_job *const calling_jobs[] = {&tfi_cupti_job, &tfi_event_times_job, &tfi_nvml_job};

/* quick_exit calls libc's internal _exit, which bypasses our hook. */
static void at_quick(void)
{
    tfi_finish("quick_exit");
}

/* For a worker that calls other libraries: hooks of CUDA start it. */
static bool start_libc_thread(void *(*run)(void *), void *data)
{
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 512u << 10);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    bool ok = pthread_create(&thread, &attributes, run, data) == 0;
    pthread_attr_destroy(&attributes);
    return ok;
}

/* Registers handlers with libc, which takes locks of its own meanwhile: after the constructor that is too late. */
static void register_handlers(void)
{
    pthread_key_t key;
    (void)at_quick_exit(at_quick);
    pthread_atfork(tfi_before_fork, tfi_after_fork_parent, tfi_after_fork_child);
    if (pthread_key_create(&key, tfi_thread_ended) == 0) tfi_threads_have_key(key);
    tfi_thread_variables_constructor();
}

/* Chooses the run directory, and passes it on to children. libc reads a file to know the local time: most directories need none. */
static void choose_run_dir(void)
{
    char minute[16] = "";
    time_t now = time(NULL);
    struct tm tm;
    if (!tfi_config.inherited_dir && !tfi_config.output_dir && localtime_r(&now, &tm))
        strftime(minute, sizeof minute, "%Y%m%d_%H%M", &tm);
    tfi_run_dir_begin(minute);
    tfi_run_dir_pass_on();
}

/* An interpreter runs, and no lock of the loader is held. */
static void python_started(void)
{
    tfi_silence_started();
    tfi_looks_started();
}

/* Runs once. Constructors of other libraries may call into us first, so the first call may come from one of them. */
void tfi_construct(void)
{
    static bool done;
    if (done) return;
    done = true;
    size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    struct tfi_process *page = tfi_map(bytes);
    if (page) {
        tfi_process_move(page, bytes);
        __atomic_store_n(&tfi_cupti, (struct tfi_cupti *)(page + 16), __ATOMIC_RELEASE); /* the same page has room */
    }
    tfi_objects_constructor();
    tfi_clock_constructor();
    tfi_process_ends_by(tfi_life_end, tfi_life_resume);
    register_handlers();
    tfi_stderr_init();
    tfi_life.started_as = tfi_getpid();
    tfi_config_read();
    tfi_schedule_init();
    tfi_libc_thread_start = start_libc_thread;
    tfi_background_init(own_jobs, TFI_COUNT(own_jobs), calling_jobs, TFI_COUNT(calling_jobs));
    tfi_clock_init();
    tfi_dl_constructor();
    tfi_life.preloaded = tfi_dl_is_preloaded();
    choose_run_dir();
    tfi_once_constructor();
    tfi_callstack_constructor();
    tfi_console_constructor();
    tfi_device_constructor();
    tfi_sync_constructor();
    tfi_select_constructor();
    tfi_io_constructor();
    tfi_nvtx_constructor();
    tfi_nccl_plugin_constructor();
    tfi_python_at_start(python_started);
    tfi_python_constructor();
    tfi_host_blocks_constructor();
}

__attribute__((constructor)) static void load(void)
{
    tfi_prepare();
}

__attribute__((destructor)) static void unload(void)
{
    tfi_io_end(-1);
    tfi_finish("exit");
}

extern int tfi_range_push(const char *name); /* stage/user_api.c */

/* True if the program is bound to another copy of this library. */
static bool another_is_preloaded(void)
{
    void *program = dlopen(NULL, RTLD_LAZY), *bound = program ? tfi_dlsym(program, "tfi_range_push") : NULL;
    return bound && bound != (void *)tfi_range_push;
}

/* The driver calls this in cuInit if CUDA_INJECTION64_PATH names this library; the constructor has run by then. If the
 * library is preloaded as well, its wrappers see every call and there is nothing to do. Otherwise nothing calls the
 * wrappers, and this is the one moment to start CUPTI, and to wake if all is selected: the driver is loaded, and no
 * context exists yet. */
TFI_EXPORT int InitializeInjection(void);
int InitializeInjection(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD); /* NULL: the caller is not the driver */
    if (!driver || tfi_config.secure || tfi_dl_is_preloaded() || another_is_preloaded()) return 1;
    tfi_cupti_injected();
    struct tfi_thread *t = tfi_enter(TFI_WHY_CALL);
    if (t) tfi_leave(t);
    return 1;
}
