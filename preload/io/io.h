/* io.h - records one call on a file: what a wrapper passes, and the body that all ordinary wrappers share.
 *
 * A wrapper describes its call in a struct tfi_io, calls tfi_io_enter() before the original and tfi_io_leave() after it.
 * Nothing that the program passes by pointer is read before the call, because the pointer may be invalid and the call
 * then fails with EFAULT.
 */
#ifndef TFI_IO_H
#define TFI_IO_H

#include <stdio.h>
#include <sys/uio.h>

#include "hooks/call_record.h"
#include "io/descriptors.h"

/* Finds out which file the call is about. */
enum tfi_io_target {
    TFI_IO_NONE,    /* no file: its record has no path */
    TFI_IO_FD,      /* `fd` */
    TFI_IO_STREAM,  /* `stream` */
    TFI_IO_PATH,    /* `path`, relative to the directory `dir` */
    TFI_IO_ADDRESS, /* the file mapped at `address` */
};

/* The call's effect on what is known about descriptors, if it succeeds. */
enum tfi_io_effect {
    TFI_IO_ADVANCES = 1, /* the position moves by the result */
    TFI_IO_SEEKS,        /* the position is the result */
    TFI_IO_OPENS,        /* the result is a descriptor of the file */
    TFI_IO_CLOSES,
    TFI_IO_COPIES, /* the result is another descriptor of the same file */
    TFI_IO_MAPS,   /* the file is mapped at the result */
    TFI_IO_UNMAPS,
    TFI_IO_MOVES_AWAY, /* the working directory is another one */
    TFI_IO_PAIRS,      /* `pair` has two new descriptors that are no files */
};

/* Turns the return value into the record's result. */
enum tfi_io_result {
    TFI_IO_PLAIN,     /* negative: failed */
    TFI_IO_POINTER,   /* NULL: failed, or the end */
    TFI_IO_MAPPED,    /* MAP_FAILED: failed */
    TFI_IO_ERRNO,     /* not 0: it is the errno */
    TFI_IO_ITEMS,     /* items of `item` bytes; fewer than requested: failed if the stream says so */
    TFI_IO_TEXT,      /* a string that was read, NULL: failed or end of file */
    TFI_IO_LINE,      /* as PLAIN, but -1 at the end of the file is no failure */
    TFI_IO_FORMATTED, /* as PLAIN; as many bytes were requested */
    TFI_IO_PUT,       /* a string of `bytes` was written; negative: failed */
    TFI_IO_NEW,       /* a stream or directory; the result is its descriptor */
    TFI_IO_IGNORED,   /* the function returns nothing */
};

struct tfi_io {
    struct tfi_call call; /* no thread: the call is not recorded */
    const struct tfi_path *file;
    uint8_t target, effect, result; /* the enums above */
    bool looked_up;                 /* its descriptor was unknown until now */
    bool has_offset, has_other_fd, has_item;
    int fd, dir;
    int other_fd, other_dir;
    const char *path, *other; /* of the program; `other` is the second name */
    FILE *stream;
    const void *address;
    const struct iovec *parts; /* `count` buffers; they are summed up after the call */
    uint64_t count;
    const off_t *offset_after; /* the position after the call, if it succeeded */
    const int *pair;
    uint64_t bytes;
    uint64_t item;
    int64_t offset;
    const struct tfi_path *here; /* working directory before a call that changes it */
    int64_t position;            /* known position of the descriptor before the call */
    uint32_t flags, mode;
};

/* True if io is, or may be, among the activities; set in the constructor. */
extern bool tfi_io_on;

/* Prepares a call; true if tfi_io_leave() must follow. Keeps errno. */
bool tfi_io_enter_from(struct tfi_io *io, enum tfi_hook hook, uintptr_t frame);
static inline __attribute__((always_inline)) bool tfi_io_enter(struct tfi_io *io, enum tfi_hook hook)
{
    return tfi_io_enter_from(io, hook, (uintptr_t)__builtin_frame_address(0));
}

/* Ends it, with the return value. Keeps errno. */
void tfi_io_leave(struct tfi_io *io, int64_t result);

/* Reads the settings. Called in the constructor. */
void tfi_io_constructor(void);

/* True if a call is known to be of no interest. The wrapper passes a second copy of the description, of which the
 * compiler keeps only what is read here. */
static inline __attribute__((always_inline)) bool tfi_io_skips(struct tfi_io io)
{
    if (io.effect == TFI_IO_MAPS) return io.fd < 0; /* memory without a file */
    if (io.effect > TFI_IO_SEEKS) return false;
    if (io.target == TFI_IO_FD) return tfi_fd_unwanted(io.fd);
    return io.target == TFI_IO_STREAM && io.stream && io.stream->_fileno >= 0 && tfi_fd_unwanted(io.stream->_fileno);
}

/* ---- parts of a row ---- */

#define FD(number) .target = TFI_IO_FD, .fd = (number)
#define STREAM(file) .target = TFI_IO_STREAM, .stream = (file), .fd = -1
#define PATH(name) AT(AT_FDCWD, name)
#define AT(directory, name) .target = TFI_IO_PATH, .dir = (directory), .path = (name), .fd = -1
#define ADDRESS(start) .target = TFI_IO_ADDRESS, .address = (start), .fd = -1
#define NO_FILE .target = TFI_IO_NONE, .fd = -1
#define BYTES(number) .bytes = (number)
#define PARTS(vector, number) .parts = (vector), .count = (number)
#define ITEMS(size, number) .bytes = (uint64_t)(size) * (number), .item = (size), .result = TFI_IO_ITEMS
#define OFFSET(number) .offset = (number), .has_offset = true
#define OFFSET_AFTER(pointer) .offset_after = (const off_t *)(pointer)
#define FLAGS(bits) .flags = (uint32_t)(bits)
#define MODE(bits) .mode = (uint32_t)(bits)
#define TO_FD(number) .other_fd = (number), .has_other_fd = true
#define TO_PATH(name) TO_AT(AT_FDCWD, name)
#define TO_AT(directory, name) .other_dir = (directory), .other = (name)
#define TEXT(string) .other_dir = TFI_IO_NO_PATH, .other = (string)
#define EFFECT(what) .effect = TFI_IO_##what
#define RESULT(how) .result = TFI_IO_##how

#define TFI_IO_NO_PATH (-200) /* in other_dir: `other` is text as it stands, no path of this process */

/* The result of a wrapper without an original: -1, or NULL. */
#define TFI_IO_MISSING(type) ((type)(intptr_t)(__builtin_classify_type((type)0) == 5 ? 0 : -1))

#ifdef __cppcheck__ /* it cannot call a macro with arguments that stand in an argument of another one */
#define TFI_IO_WRAP(ret, symbol, params, args, values) TFI_EXPORT ret symbol params;
#define TFI_IO_WRAP_VOID(symbol, params, args, values) TFI_EXPORT void symbol params;
#else
#define TFI_IO_WRAP(ret, symbol, params, args, values)                                                                 \
    TFI_EXPORT ret symbol params                                                                                       \
    {                                                                                                                  \
        ret(*real_) params = (ret(*) params)tfi_real(TFI_HOOK_##symbol);                                               \
        if (TFI_UNLIKELY(!real_)) return errno = ENOSYS, TFI_IO_MISSING(ret);                                          \
        if (TFI_LIKELY(!tfi_io_on)) return real_ args;                                                                 \
        const struct tfi_io asked_ = {TFI_IO_EACH values};                                                             \
        if (tfi_io_skips(asked_)) return real_ args;                                                                   \
        struct tfi_io io_ = {TFI_IO_EACH values};                                                                      \
        if (!tfi_io_enter(&io_, TFI_HOOK_##symbol)) return real_ args;                                                 \
        ret result_ = real_ args;                                                                                      \
        tfi_io_leave(&io_, (int64_t)(intptr_t)result_);                                                                \
        return result_;                                                                                                \
    }
#define TFI_IO_WRAP_VOID(symbol, params, args, values)                                                                 \
    TFI_EXPORT void symbol params                                                                                      \
    {                                                                                                                  \
        void(*real_) params = (void(*) params)tfi_real(TFI_HOOK_##symbol);                                             \
        if (TFI_UNLIKELY(!real_)) return;                                                                              \
        if (TFI_LIKELY(!tfi_io_on)) return real_ args;                                                                 \
        const struct tfi_io asked_ = {TFI_IO_EACH values};                                                             \
        if (tfi_io_skips(asked_)) return real_ args;                                                                   \
        struct tfi_io io_ = {TFI_IO_EACH values};                                                                      \
        bool entered_ = tfi_io_enter(&io_, TFI_HOOK_##symbol);                                                         \
        real_ args;                                                                                                    \
        if (entered_) tfi_io_leave(&io_, 0);                                                                           \
    }
#define TFI_IO_EACH(...) __VA_ARGS__
#endif

#endif
