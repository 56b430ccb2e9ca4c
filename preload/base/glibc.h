/* glibc.h - binds the library to old versions of libc's functions; every file of the library is compiled with it.
 *
 * A preloaded library that needs a version missing from the system's libc is fatal to every process. So the library
 * needs nothing newer than glibc 2.28, where wheels of torch still run. Some functions got a new version since, most by
 * moving from libpthread and libdl into libc in 2.34; every libc still has the old version. A test reads the versions of
 * the finished library.
 * The library wraps functions of files. Its own calls must not go through these wrappers, so it makes system calls
 * instead; the ones that several files need are declared here.
 */
#ifndef TFI_GLIBC_H
#define TFI_GLIBC_H

#define OLD(symbol, version) __asm__(".symver " #symbol ", " #symbol "@GLIBC_" version)
OLD(dladdr, "2.2.5");
OLD(dladdr1, "2.3.3");
OLD(dlclose, "2.2.5");
OLD(dlerror, "2.2.5");
OLD(dlinfo, "2.3.3");
OLD(dlopen, "2.2.5");
OLD(dlvsym, "2.2.5");
OLD(pthread_attr_getstack, "2.2.5");
OLD(pthread_attr_setstacksize, "2.2.5");
OLD(pthread_create, "2.2.5");
OLD(pthread_getattr_np, "2.2.5");
OLD(pthread_getspecific, "2.2.5");
OLD(pthread_join, "2.2.5");
OLD(pthread_key_create, "2.2.5");
OLD(pthread_once, "2.2.5");
OLD(pthread_setspecific, "2.2.5");
OLD(pthread_sigmask, "2.2.5");
OLD(pthread_timedjoin_np, "2.3.3");
OLD(pthread_tryjoin_np, "2.3.3");
#undef OLD

struct stat;
int tfi_fstatat(int dir, const char *path, struct stat *st, int flags);
int tfi_stat(const char *path, struct stat *st);
int tfi_lstat(const char *path, struct stat *st);
int tfi_fstat(int fd, struct stat *st);
int tfi_unmap(void *address, unsigned long bytes);
long tfi_readlink(const char *path, char *target, unsigned long size);

#endif
