/* driverless.c - a CUDA program on a machine without a working driver: the vendor's runtime fails, as a rule with 35.
 *
 *     driverless LIBCUDART [LIBRARY…]   opens the libraries first (such as a CUPTI), then the runtime, and prints the
 *                                       results of a few calls; exits with the status of the first call
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    static const char *const names[] = {"cudaSetDevice", "cudaFree", "cudaGetLastError"};
    int results[3];
    for (int i = 2; i < argc; i++)
        if (!dlopen(argv[i], RTLD_NOW | RTLD_GLOBAL)) return 2;
    void *runtime = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (!runtime) return 2;
    int (*set)(int) = (int (*)(int))dlsym(runtime, names[0]);
    int (*release)(void *) = (int (*)(void *))dlsym(runtime, names[1]);
    int (*last)(void) = (int (*)(void))dlsym(runtime, names[2]);
    if (!set || !release || !last) return 2;
    dlerror();
    errno = 0;
    results[0] = set(0);
    printf("%s: %d, errno %d, dlerror %s\n", names[0], results[0], errno ? 1 : 0, dlerror() ? "set" : "none");
    results[1] = release(NULL);
    results[2] = last();
    printf("%s: %d\n%s: %d\n", names[1], results[1], names[2], results[2]);
    return results[0];
}
