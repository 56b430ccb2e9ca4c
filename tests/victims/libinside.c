/* libinside.c - aborts a program whose recorder calls what may take a lock: malloc, the loader, threads, stdio, the time zone.
 *
 * Preloaded before the test build of the library, whose tfi_test_is_inside() says whether the calling thread is in the
 * recorder. Calls that the program makes itself go on to libc.
 */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

extern bool tfi_test_is_inside(void) __attribute__((weak));
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void __libc_free(void *);

static void outside(const char *function)
{
    static const char said[] = " was called from inside a hook\n";
    if (!tfi_test_is_inside || !tfi_test_is_inside()) return;
    (void)!write(2, function, strlen(function));
    (void)!write(2, said, sizeof said - 1);
    abort();
}

#define NEXT(function) ((__typeof__(&function))next(#function))

static void *next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

void *malloc(size_t size)
{
    return outside("malloc"), __libc_malloc(size);
}
void *calloc(size_t count, size_t size)
{
    return outside("calloc"), __libc_calloc(count, size);
}
void *realloc(void *block, size_t size)
{
    return outside("realloc"), __libc_realloc(block, size);
}
void free(void *block)
{
    outside("free"), __libc_free(block);
}

void *dlopen(const char *name, int flags)
{
    return outside("dlopen"), NEXT(dlopen)(name, flags);
}
int dlclose(void *library)
{
    return outside("dlclose"), NEXT(dlclose)(library);
}
char *dlerror(void)
{
    return outside("dlerror"), NEXT(dlerror)();
}
int dladdr(const void *address, Dl_info *info)
{
    return outside("dladdr"), NEXT(dladdr)(address, info);
}

int dl_iterate_phdr(int (*visit)(struct dl_phdr_info *, size_t, void *), void *data)
{
    return outside("dl_iterate_phdr"), NEXT(dl_iterate_phdr)(visit, data);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *data)
{
    return outside("pthread_create"), NEXT(pthread_create)(thread, attributes, start, data);
}

FILE *fopen(const char *path, const char *mode)
{
    return outside("fopen"), NEXT(fopen)(path, mode);
}
size_t fwrite(const void *from, size_t size, size_t count, FILE *to)
{
    return outside("fwrite"), NEXT(fwrite)(from, size, count, to);
}
int fputs(const char *text, FILE *to)
{
    return outside("fputs"), NEXT(fputs)(text, to);
}
int fflush(FILE *stream)
{
    return outside("fflush"), NEXT(fflush)(stream);
}
int vsnprintf(char *to, size_t size, const char *format, va_list values)
{
    return outside("vsnprintf"), NEXT(vsnprintf)(to, size, format, values);
}

int snprintf(char *to, size_t size, const char *format, ...)
{
    va_list values;
    outside("snprintf");
    va_start(values, format);
    int length = NEXT(vsnprintf)(to, size, format, values);
    va_end(values);
    return length;
}

struct tm *localtime_r(const time_t *moment, struct tm *to)
{
    return outside("localtime_r"), NEXT(localtime_r)(moment, to);
}
int setenv(const char *name, const char *value, int replace)
{
    return outside("setenv"), NEXT(setenv)(name, value, replace);
}
