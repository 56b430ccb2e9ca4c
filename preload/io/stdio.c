/* stdio.c - defines the wrappers of io/stdio.def.
 *
 * Functions with a variable number of arguments call the original of their v-function.
 * The switches below keep libc's headers from defining some of these functions inline.
 */
#undef _FORTIFY_SOURCE
#ifndef __NO_INLINE__
#define __NO_INLINE__ 1
#endif

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "io/descriptors.h"
#include "io/io.h"

#undef fread_unlocked
#undef fwrite_unlocked

/* A string that is written. libc reads it first, so it is valid. */
#define PUT(text) BYTES(strlen(text)), RESULT(PUT)

#define LIBRARY(name, soname)
#define HOOK(class, ret, symbol, params, args, names, values) TFI_IO_WRAP(ret, symbol, params, args, values)
#define HOOK_VOID(class, ret, symbol, params, args, names, values) TFI_IO_WRAP_VOID(symbol, params, args, values)
#define HOOK_CUSTOM(class, ret, symbol, params, names)
#include "io/stdio.def"

/* ---- opening ---- */

/* The flags that open(2) would need for a mode of fopen. */
static uint32_t flags_of(const char *mode)
{
    uint32_t flags = mode[0] == 'r'   ? O_RDONLY
                     : mode[0] == 'a' ? O_WRONLY | O_CREAT | O_APPEND
                                      : O_WRONLY | O_CREAT | O_TRUNC;
    for (; *mode && *mode != ','; mode++) {
        if (*mode == '+') flags = (flags & ~(uint32_t)O_ACCMODE) | O_RDWR;
        if (*mode == 'e') flags |= O_CLOEXEC;
        if (*mode == 'x') flags |= O_EXCL;
    }
    return flags;
}

typedef FILE *open_function(const char *path, const char *mode);
typedef FILE *reopen_function(const char *path, const char *mode, FILE *file);

static inline __attribute__((always_inline)) FILE *open_by(enum tfi_hook hook, open_function *real, const char *path,
                                                           const char *mode)
{
    if (TFI_UNLIKELY(!real)) return errno = ENOSYS, NULL;
    if (TFI_LIKELY(!tfi_io_on)) return real(path, mode);
    struct tfi_io io = {PATH(path), FLAGS(flags_of(mode)), RESULT(NEW), EFFECT(OPENS)};
    if (!tfi_io_enter(&io, hook)) return real(path, mode);
    FILE *file = real(path, mode);
    io.other_fd = file ? file->_fileno : -1;
    tfi_io_leave(&io, (intptr_t)file);
    return file;
}

/* Without a path only the mode of the stream changes. */
static inline __attribute__((always_inline)) FILE *reopen_by(enum tfi_hook hook, reopen_function *real,
                                                             const char *path, const char *mode, FILE *file)
{
    if (TFI_UNLIKELY(!real)) return errno = ENOSYS, NULL;
    if (TFI_LIKELY(!tfi_io_on) || !path) return real(path, mode, file);
    struct tfi_io io = {PATH(path), FLAGS(flags_of(mode)), RESULT(NEW), EFFECT(OPENS)};
    int old = file->_fileno;
    if (!tfi_io_enter(&io, hook)) return real(path, mode, file);
    if (old >= 0) tfi_fd_forget(old);
    FILE *result = real(path, mode, file);
    io.other_fd = result ? result->_fileno : -1;
    tfi_io_leave(&io, (intptr_t)result);
    return result;
}

TFI_EXPORT FILE *fopen(const char *path, const char *mode)
{
    return open_by(TFI_HOOK_fopen, (open_function *)tfi_real(TFI_HOOK_fopen), path, mode);
}

TFI_EXPORT FILE *fopen64(const char *path, const char *mode)
{
    return open_by(TFI_HOOK_fopen64, (open_function *)tfi_real(TFI_HOOK_fopen64), path, mode);
}

TFI_EXPORT FILE *freopen(const char *path, const char *mode, FILE *file)
{
    return reopen_by(TFI_HOOK_freopen, (reopen_function *)tfi_real(TFI_HOOK_freopen), path, mode, file);
}

TFI_EXPORT FILE *freopen64(const char *path, const char *mode, FILE *file)
{
    return reopen_by(TFI_HOOK_freopen64, (reopen_function *)tfi_real(TFI_HOOK_freopen64), path, mode, file);
}

TFI_EXPORT FILE *fdopen(int fd, const char *mode)
{
    FILE *(*real)(int, const char *) = (FILE * (*)(int, const char *)) tfi_real(TFI_HOOK_fdopen);
    if (TFI_UNLIKELY(!real)) return errno = ENOSYS, NULL;
    if (TFI_LIKELY(!tfi_io_on)) return real(fd, mode);
    struct tfi_io io = {FD(fd), FLAGS(flags_of(mode)), RESULT(NEW)};
    if (!tfi_io_enter(&io, TFI_HOOK_fdopen)) return real(fd, mode);
    FILE *file = real(fd, mode);
    io.other_fd = fd;
    tfi_io_leave(&io, (intptr_t)file);
    return file;
}

/* ---- formatted output ---- */

typedef int format_function(FILE *file, const char *format, va_list list);
typedef int checked_function(FILE *file, int flag, const char *format, va_list list);

TFI_EXPORT int fprintf(FILE *file, const char *format, ...)
{
    format_function *real = (format_function *)tfi_real(TFI_HOOK_vfprintf);
    struct tfi_io io = {STREAM(file), RESULT(FORMATTED)};
    bool entered = tfi_io_on && tfi_io_enter(&io, TFI_HOOK_fprintf);
    va_list list;
    va_start(list, format);
    int result = real ? real(file, format, list) : -1;
    va_end(list);
    if (entered) tfi_io_leave(&io, result);
    return result;
}

TFI_EXPORT int __fprintf_chk(FILE *file, int flag, const char *format, ...)
{
    checked_function *real = (checked_function *)tfi_real(TFI_HOOK___vfprintf_chk);
    struct tfi_io io = {STREAM(file), RESULT(FORMATTED)};
    bool entered = tfi_io_on && tfi_io_enter(&io, TFI_HOOK___fprintf_chk);
    va_list list;
    va_start(list, format);
    int result = real ? real(file, flag, format, list) : -1;
    va_end(list);
    if (entered) tfi_io_leave(&io, result);
    return result;
}

TFI_EXPORT int dprintf(int fd, const char *format, ...)
{
    int (*real)(int, const char *, va_list) = (int (*)(int, const char *, va_list))tfi_real(TFI_HOOK_vdprintf);
    struct tfi_io io = {FD(fd), EFFECT(ADVANCES), RESULT(FORMATTED)};
    bool entered = tfi_io_on && tfi_io_enter(&io, TFI_HOOK_dprintf);
    va_list list;
    va_start(list, format);
    int result = real ? real(fd, format, list) : -1;
    va_end(list);
    if (entered) tfi_io_leave(&io, result);
    return result;
}

TFI_EXPORT int __dprintf_chk(int fd, int flag, const char *format, ...)
{
    int (*real)(int, int, const char *, va_list) =
        (int (*)(int, int, const char *, va_list))tfi_real(TFI_HOOK___vdprintf_chk);
    struct tfi_io io = {FD(fd), EFFECT(ADVANCES), RESULT(FORMATTED)};
    bool entered = tfi_io_on && tfi_io_enter(&io, TFI_HOOK___dprintf_chk);
    va_list list;
    va_start(list, format);
    int result = real ? real(fd, flag, format, list) : -1;
    va_end(list);
    if (entered) tfi_io_leave(&io, result);
    return result;
}
