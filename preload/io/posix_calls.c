/* posix_calls.c - defines the wrappers of io/posix.def.
 *
 * _FORTIFY_SOURCE is off here, because libc's headers would define some of these functions inline.
 */
#undef _FORTIFY_SOURCE

#include <aio.h>
#include <dirent.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>
#include <utime.h>

#include "io/descriptors.h"
#include "io/io.h"
#include "record/background.h"
#include "record/writer.h"

/* An aio request. The program must keep it valid, and libc reads it as well. */
#define AIO(request)                                                                                                   \
    FD((request)->aio_fildes), BYTES((request)->aio_nbytes), OFFSET((request)->aio_offset),                            \
        FLAGS((request)->aio_lio_opcode)

/* The descriptor of a request to aio_fsync, which looks at its flags first. */
static inline int synced(int flags, const struct aiocb *request)
{
    return flags == O_SYNC || flags == O_DSYNC ? request->aio_fildes : -1;
}

static inline int synced64(int flags, const struct aiocb64 *request)
{
    return flags == O_SYNC || flags == O_DSYNC ? request->aio_fildes : -1;
}

#define LIBRARY(name, soname)
#define HOOK(class, ret, symbol, params, args, names, values) TFI_IO_WRAP(ret, symbol, params, args, values)
#define HOOK_VOID(class, ret, symbol, params, args, names, values) TFI_IO_WRAP_VOID(symbol, params, args, values)
#define HOOK_CUSTOM(class, ret, symbol, params, names)
#define HOOK_CUSTOM_VOID(class, ret, symbol, params, names)
#include "io/posix.def"

/* ---- open ---- */

typedef int open_function(const char *path, int flags, ...);
typedef int openat_function(int dir, const char *path, int flags, ...);

static bool takes_mode(int flags)
{
    return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE;
}

static inline __attribute__((always_inline)) int open_at(enum tfi_hook hook, open_function *real, const char *path,
                                                         int flags, mode_t mode)
{
    if (TFI_UNLIKELY(!real)) return errno = ENOSYS, -1;
    if (TFI_LIKELY(!tfi_io_on)) return real(path, flags, mode);
    struct tfi_io io = {PATH(path), FLAGS(flags), MODE(mode), EFFECT(OPENS)};
    if (!tfi_io_enter(&io, hook)) return real(path, flags, mode);
    int fd = real(path, flags, mode);
    tfi_io_leave(&io, fd);
    return fd;
}

static inline __attribute__((always_inline)) int openat_at(enum tfi_hook hook, openat_function *real, int dir,
                                                           const char *path, int flags, mode_t mode)
{
    if (TFI_UNLIKELY(!real)) return errno = ENOSYS, -1;
    if (TFI_LIKELY(!tfi_io_on)) return real(dir, path, flags, mode);
    struct tfi_io io = {AT(dir, path), FLAGS(flags), MODE(mode), EFFECT(OPENS)};
    if (!tfi_io_enter(&io, hook)) return real(dir, path, flags, mode);
    int fd = real(dir, path, flags, mode);
    tfi_io_leave(&io, fd);
    return fd;
}

/* Reads the optional mode behind `last` into `mode`. */
#define READ_MODE(mode, last)                                                                                          \
    mode_t mode = 0;                                                                                                   \
    va_list list_;                                                                                                     \
    va_start(list_, last);                                                                                             \
    if (takes_mode(last)) mode = va_arg(list_, mode_t);                                                                \
    va_end(list_)

TFI_EXPORT int open(const char *path, int flags, ...)
{
    READ_MODE(mode, flags);
    return open_at(TFI_HOOK_open, (open_function *)tfi_real(TFI_HOOK_open), path, flags, mode);
}

TFI_EXPORT int open64(const char *path, int flags, ...)
{
    READ_MODE(mode, flags);
    return open_at(TFI_HOOK_open64, (open_function *)tfi_real(TFI_HOOK_open64), path, flags, mode);
}

TFI_EXPORT int openat(int dir, const char *path, int flags, ...)
{
    READ_MODE(mode, flags);
    return openat_at(TFI_HOOK_openat, (openat_function *)tfi_real(TFI_HOOK_openat), dir, path, flags, mode);
}

TFI_EXPORT int openat64(int dir, const char *path, int flags, ...)
{
    READ_MODE(mode, flags);
    return openat_at(TFI_HOOK_openat64, (openat_function *)tfi_real(TFI_HOOK_openat64), dir, path, flags, mode);
}

/* ---- fcntl ---- */

typedef int fcntl_function(int fd, int command, ...);

static inline __attribute__((always_inline)) int fcntl_at(enum tfi_hook hook, fcntl_function *real, int fd, int command,
                                                          void *argument)
{
    bool copies = command == F_DUPFD || command == F_DUPFD_CLOEXEC;
    if (TFI_UNLIKELY(!real)) return errno = ENOSYS, -1;
    if (TFI_LIKELY(!tfi_io_on)) return real(fd, command, argument);
    struct tfi_io io = {FD(fd), FLAGS(command), .effect = copies ? TFI_IO_COPIES : 0};
    if (!tfi_io_enter(&io, hook)) return real(fd, command, argument);
    int result = real(fd, command, argument);
    tfi_io_leave(&io, result);
    return result;
}

TFI_EXPORT int fcntl(int fd, int command, ...)
{
    va_list list;
    va_start(list, command);
    void *argument = va_arg(list, void *);
    va_end(list);
    return fcntl_at(TFI_HOOK_fcntl, (fcntl_function *)tfi_real(TFI_HOOK_fcntl), fd, command, argument);
}

TFI_EXPORT int fcntl64(int fd, int command, ...)
{
    va_list list;
    va_start(list, command);
    void *argument = va_arg(list, void *);
    va_end(list);
    return fcntl_at(TFI_HOOK_fcntl64, (fcntl_function *)tfi_real(TFI_HOOK_fcntl64), fd, command, argument);
}

/* ---- another root ---- */

/* No path leads to the trace any more, so it stays open, and the next background thread takes it over. */
TFI_EXPORT int chroot(const char *path)
{
    int (*real)(const char *) = (int (*)(const char *))tfi_real(TFI_HOOK_chroot);
    struct tfi_io io = {PATH(path), EFFECT(MOVES_AWAY)};
    if (TFI_UNLIKELY(!real)) return errno = ENOSYS, -1;
    bool entered = tfi_io_on && tfi_io_enter(&io, TFI_HOOK_chroot);
    tfi_writer_keep();
    tfi_background_before_fork();
    int result = real(path);
    if (entered) tfi_io_leave(&io, result);
    tfi_background_after_fork();
    return result;
}

/* ---- many descriptors ---- */

TFI_EXPORT int close_range(unsigned first, unsigned last, int flags)
{
    int (*real)(unsigned, unsigned, int) = (int (*)(unsigned, unsigned, int))tfi_real(TFI_HOOK_close_range);
    if (TFI_UNLIKELY(!real)) return errno = ENOSYS, -1;
    if (TFI_LIKELY(!tfi_io_on)) return real(first, last, flags);
    struct tfi_io io = {NO_FILE, FLAGS(flags), BYTES(0), .effect = TFI_IO_CLOSES};
    if (!tfi_io_enter(&io, TFI_HOOK_close_range)) return real(first, last, flags);
    if (!(flags & CLOSE_RANGE_CLOEXEC)) tfi_fd_forget_range(first, last);
    int result = real(first, last, flags);
    tfi_io_leave(&io, result);
    return result;
}

TFI_EXPORT void closefrom(int first)
{
    void (*real)(int) = (void (*)(int))tfi_real(TFI_HOOK_closefrom);
    if (TFI_UNLIKELY(!real)) return;
    if (TFI_LIKELY(!tfi_io_on)) return real(first);
    struct tfi_io io = {NO_FILE, RESULT(IGNORED), .effect = TFI_IO_CLOSES};
    if (!tfi_io_enter(&io, TFI_HOOK_closefrom)) return real(first);
    tfi_fd_forget_range(first < 0 ? 0 : (unsigned)first, ~0u);
    real(first);
    tfi_io_leave(&io, 0);
}

/* ---- directories ---- */

TFI_EXPORT DIR *opendir(const char *path)
{
    DIR *(*real)(const char *) = (DIR * (*)(const char *)) tfi_real(TFI_HOOK_opendir);
    if (TFI_UNLIKELY(!real)) return errno = ENOSYS, NULL;
    if (TFI_LIKELY(!tfi_io_on)) return real(path);
    struct tfi_io io = {PATH(path), RESULT(NEW), EFFECT(OPENS)};
    if (!tfi_io_enter(&io, TFI_HOOK_opendir)) return real(path);
    DIR *dir = real(path);
    io.other_fd = dir ? dirfd(dir) : -1;
    tfi_io_leave(&io, (intptr_t)dir);
    return dir;
}

TFI_EXPORT DIR *fdopendir(int fd)
{
    DIR *(*real)(int) = (DIR * (*)(int)) tfi_real(TFI_HOOK_fdopendir);
    if (TFI_UNLIKELY(!real)) return errno = ENOSYS, NULL;
    if (TFI_LIKELY(!tfi_io_on)) return real(fd);
    struct tfi_io io = {FD(fd), RESULT(NEW)};
    if (!tfi_io_enter(&io, TFI_HOOK_fdopendir)) return real(fd);
    DIR *dir = real(fd);
    io.other_fd = fd;
    tfi_io_leave(&io, (intptr_t)dir);
    return dir;
}

/* The descriptor of a directory to close, which may be NULL: libc refuses it, though its header promises that it is not. */
static int descriptor_of(DIR *dir)
{
    __asm__("" : "+r"(dir)); /* the compiler believes the header */
    return dir ? dirfd(dir) : -1;
}

TFI_EXPORT int closedir(DIR *dir)
{
    int (*real)(DIR *) = (int (*)(DIR *))tfi_real(TFI_HOOK_closedir);
    if (TFI_UNLIKELY(!real)) return errno = ENOSYS, -1;
    if (TFI_LIKELY(!tfi_io_on)) return real(dir);
    struct tfi_io io = {FD(descriptor_of(dir)), EFFECT(CLOSES)};
    if (!tfi_io_enter(&io, TFI_HOOK_closedir)) return real(dir);
    int result = real(dir);
    tfi_io_leave(&io, result);
    return result;
}
