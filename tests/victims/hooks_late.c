/* hooks_late.c - hooks_late [DIRECTORY]: calls functions before their libraries are loaded, then loads them RTLD_LOCAL.
 *
 * It is linked with no library of ours; it finds the wrappers by dlsym(RTLD_DEFAULT).
 */
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static void *open_local(const char *directory, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) exit(3);
    return handle;
}

int main(int argc, char **argv)
{
    uint64_t out = 5;
    long (*add)(long) = (long (*)(long))dlsym(RTLD_DEFAULT, "dummy_add");
    void (*store)(uint64_t *, uint64_t) = (void (*)(uint64_t *, uint64_t))dlsym(RTLD_DEFAULT, "dummy_store");
    if (!add || !store) return 2;
    errno = 77;
    long result = add(7);
    store(&out, 6);
    printf("missing %ld %d %d\n", result, (int)out, errno);
    fflush(stdout);
    if (argc < 2) return 0;
    open_local(argv[1], "libdummy.so");
    void *user = open_local(argv[1], "libhooks.so");
    long (*hooks_add)(long) = (long (*)(long))dlsym(user, "hooks_add");
    printf("local %ld\n", hooks_add(1));
    printf("found again %ld\n", add(2));
    fflush(stdout);
    dlclose(user);
    return 0;
}
