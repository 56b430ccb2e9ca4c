/* sync_stages.c - implements TFI_SYNC_STAGES=1: waits for the device at the edges of all stages.
 *
 * The wait is a call of the driver in this thread's relaxed capture mode, so the runtime's last error stays the
 * program's. While any stream is being captured there is no wait, because it would spoil the capture. Captures are
 * counted where they begin and end. One that the driver refuses to begin counts until as many have ended: a wait is
 * missed then, but none is made too many. A thread without a current context has nothing to wait for.
 *
 * A stage may be opened in a signal handler or in the child of a fork, so its edge asks nothing of the loader: the first
 * call of CUDA finds the functions. Before that there is nothing to wait for.
 *
 * The program's own thread waits, with whatever locks it holds. If the device's work waits for a host function that
 * waits for such a lock, the wait never ends. The option is therefore off by default. Contexts of TeleFuser wait by
 * TeleFuser's own call instead (preload/python/shim/shim_telefuser.py).
 */
#include "cuda/sync_stages.h"

#include <dlfcn.h>
#include <errno.h>

#include "base/raw_dlsym.h"
#include "control/config.h"
#include "stage/watch.h"

#define RELAXED 2

static uint32_t captures; /* captures that have begun and not ended */

static int (*current)(void **);
static int (*exchange)(int *);
static int (*wait)(void);
static uint32_t found; /* UNKNOWN until the driver is there */
enum { UNKNOWN, USABLE, LACKING };

static __attribute__((noinline)) void find_functions(void)
{
    int error = errno;
    void *driver = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
    if (driver) {
        current = (int (*)(void **))tfi_dlsym(driver, "cuCtxGetCurrent");
        exchange = (int (*)(int *))tfi_dlsym(driver, "cuThreadExchangeStreamCaptureMode");
        wait = (int (*)(void))tfi_dlsym(driver, "cuCtxSynchronize");
        __atomic_store_n(&found, current && exchange && wait ? USABLE : LACKING, __ATOMIC_RELEASE);
    }
    errno = error;
}

void tfi_cuda_sync_note(enum tfi_hook hook)
{
    uint32_t count = __atomic_load_n(&captures, __ATOMIC_RELAXED);
    if (TFI_UNLIKELY(__atomic_load_n(&found, __ATOMIC_RELAXED) == UNKNOWN)) find_functions();
    switch (hook) {
    case TFI_HOOK_cuStreamBeginCapture:
    case TFI_HOOK_cuStreamBeginCapture_ptsz:
    case TFI_HOOK_cuStreamBeginCapture_v2:
    case TFI_HOOK_cuStreamBeginCapture_v2_ptsz:
    case TFI_HOOK_cuStreamBeginCaptureToCig:
    case TFI_HOOK_cuStreamBeginCaptureToCig_ptsz:
    case TFI_HOOK_cuStreamBeginCaptureToGraph:
    case TFI_HOOK_cuStreamBeginCaptureToGraph_ptsz:
    case TFI_HOOK_cudaStreamBeginCapture:
    case TFI_HOOK_cudaStreamBeginCapture_ptsz:
    case TFI_HOOK_cudaStreamBeginCaptureToGraph:
    case TFI_HOOK_cudaStreamBeginCaptureToGraph_ptsz: __atomic_add_fetch(&captures, 1, __ATOMIC_RELAXED); break;
    case TFI_HOOK_cuStreamEndCapture:
    case TFI_HOOK_cuStreamEndCapture_ptsz:
    case TFI_HOOK_cuStreamEndCaptureToCig:
    case TFI_HOOK_cuStreamEndCaptureToCig_ptsz:
    case TFI_HOOK_cudaStreamEndCapture:
    case TFI_HOOK_cudaStreamEndCapture_ptsz:
        while (count &&
               !__atomic_compare_exchange_n(&captures, &count, count - 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            continue;
        break;
    default: break;
    }
}

/* Waits until the current context's work has completed. Between tfi_enter() and tfi_leave(); keeps errno. */
static void synchronize(void)
{
    int error = errno, mode = RELAXED;
    void *context = NULL;
    if (__atomic_load_n(&found, __ATOMIC_ACQUIRE) != USABLE || __atomic_load_n(&captures, __ATOMIC_RELAXED)) return;
    if (current(&context) == 0 && context && exchange(&mode) == 0) {
        wait();
        exchange(&mode);
    }
    errno = error;
}

static const struct tfi_watcher watcher = {.edge = synchronize};

void tfi_sync_constructor(void)
{
    if (tfi_config.sync_stages == 1) tfi_watch(&watcher);
}
