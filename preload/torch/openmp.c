/* openmp.c - records the number of threads that libtorch uses for one operator: that of OpenMP, by thread.
 *
 * omp_get_max_threads() of GCC's library only reads a variable of the calling thread. Intel's starts threads when it is
 * called, so it is not asked; nor is libtorch, which sets the number when it is first asked for it.
 */
#include <dlfcn.h>
#include <string.h>

#include "base/raw_dlsym.h"
#include "record/clock.h"
#include "record/thread.h"
#include "torch/torch.h"

static int (*max_threads)(void);

void tfi_torch_openmp_init(void *library)
{
    Dl_info info;
    void *function = tfi_dlsym(library, "omp_get_max_threads");
    if (!function || !dladdr(function, &info) || !info.dli_fname || !strstr(info.dli_fname, "libgomp")) return;
    max_threads = (int (*)(void))function;
}

void tfi_torch_openmp(struct tfi_thread *t, uint32_t *known)
{
    uint32_t now = max_threads ? (uint32_t)max_threads() : 0;
    if (TFI_LIKELY(now == *known)) return;
    *known = now;
    TFI_WRITE(t, thread_pool, .threads = now, .time = tfi_ticks(), .thread = t->serial);
}
