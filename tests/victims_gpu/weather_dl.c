/* weather_dl.c - looks for the driver and its functions in every way and prints the results; linked to neither. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>

static void *driver;

static void look(const char *name)
{
    int (*get)(const char *, void **, int, unsigned long long, void *) =
        (int (*)(const char *, void **, int, unsigned long long, void *))dlsym(driver, "cuGetProcAddress_v2");
    void *found = NULL;
    int result = get ? get(name, &found, 12000, 0, NULL) : -1;
    printf("%s: %s %d %s\n", name, dlsym(driver, name) ? "symbol" : "-", result, found ? "pointer" : "-");
}

int main(int argc, char **argv)
{
    errno = 77;
    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    printf("driver %s, runtime %s, CUPTI %s\n", driver ? "there" : "missing",
           dlopen("libcudart.so.13", RTLD_NOW | RTLD_LOCAL) ? "there" : "missing",
           dlopen("libcupti.so.13", RTLD_NOLOAD | RTLD_NOW) ? "mapped" : "not mapped");
    if (!driver) {
        printf("%d %d\n", dlsym(RTLD_DEFAULT, "cuInit") != NULL, dlsym(RTLD_DEFAULT, "cudaMalloc") != NULL);
        return 3;
    }
    for (int i = 1; i < argc; i++) look(argv[i]);
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
    errno = 77;
    int result = init ? init(0) : -1;
    printf("cuInit %d %d\n", result, errno);
    return 0;
}
