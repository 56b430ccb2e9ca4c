/* plugins.c - opens a plugin, calls it and closes it, repeatedly, inside stages of its own.
 *
 * Arguments: the plugin, the number of rounds, the argument of its function (use_nvtx: whether it closes its ranges),
 * and the function's name. Each close has to unmap the plugin, as without a profiler: a plugin that stays mapped keeps
 * all of its memory.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "tfinject.h"

int main(int argc, char **argv)
{
    int times = argc > 3 ? atoi(argv[2]) : 0, kept = 0;
    for (int i = 0; i < times; i++) {
        tfi_range_push("load");
        void *handle = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        void (*use)(int) = handle ? (void (*)(int))dlsym(handle, argc > 4 ? argv[4] : "use_nvtx") : NULL;
        if (!use) return 1;
        use(atoi(argv[3]));
        dlclose(handle);
        handle = dlopen(argv[1], RTLD_NOLOAD | RTLD_LAZY);
        if (handle) kept++, dlclose(handle);
        tfi_range_pop();
    }
    printf("opened %d times, kept %d times\n", times, kept);
    return 0;
}
