/* glibc.h - binds both programs to old versions of libc's functions; every file of them is compiled with it.
 *
 * A preloaded library that needs a version missing from the system's libc is fatal to every process, and an analyser that
 * does is of no use there. So both need nothing newer than glibc 2.28, where wheels of torch still run. Some functions got
 * a new version since, most by moving from libpthread and libdl into libc in 2.34; every libc still has the old version. A
 * test reads the versions of the finished programs. Only x86-64 has these versions: a tfanalyze for another processor
 * needs the glibc that it was built with. Sanitizers replace some of these functions, so their builds bind to nothing.
 *
 * stat() and its relatives are new versions too, and none of the old ones can be bound by its name. The functions below
 * take their place. The library wraps functions of files, and its own calls must not go through these wrappers either.
 */
#ifndef TFI_GLIBC_H
#define TFI_GLIBC_H

#if defined __x86_64__ && !defined __SANITIZE_ADDRESS__
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
#ifdef TFI_TOOL
OLD(dlsym, "2.2.5"); /* the library defines its own */
OLD(pow, "2.2.5");
#endif
#undef OLD
#endif

struct stat;
/* As fstatat, stat, lstat and fstat of libc: 0, or -1 with errno set. */
int tfi_fstatat(int dir, const char *path, struct stat *st, int flags);
int tfi_stat(const char *path, struct stat *st);
int tfi_lstat(const char *path, struct stat *st);
int tfi_fstat(int fd, struct stat *st);

#endif
