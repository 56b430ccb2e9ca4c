/* io.c - records calls on files: decides before a call, follows descriptors after it, writes the record.
 *
 * The path of a call by name is resolved after the call, when the kernel or libc has read it. While the process is
 * asleep it is resolved before, because only a wanted path wakes; then access(2) tests the pointer first.
 * The child of vfork shares this memory and this thread's state, so its calls are only forwarded. io/child_processes.c notes
 * calls of vfork; calls that change descriptors ask the kernel in every case, because a raw clone is not seen.
 * A call that never returns (longjmp, pthread_cancel) has no record. The next call or the end of its thread counts it.
 */
#include "io/io.h"

#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/process.h"
#include "base/sys.h"
#include "control/config.h"
#include "control/schedule.h"
#include "io/descriptors.h"
#include "io/child_processes.h"
#include "io/sums.h"
#include "record/clock.h"
#include "record/enter.h"
#include "record/strings.h"
#include "record/thread.h"
#include "stage/recording_state.h"
#include "stage/watch.h"

bool tfi_io_on;

#define STREAM_ERROR 0x20 /* in a stream's flags, as ferror() reads it */

/* ---- before the call ---- */

static const struct tfi_path *named(int dir, const char *name)
{
    bool looked_up;
    if (!name) return tfi_path_unknown;
    if (name[0] == '/') return tfi_path_of(NULL, name);
    const struct tfi_path *parent = dir == AT_FDCWD ? tfi_path_here() : tfi_fd_file(dir, &looked_up);
    if (!parent) return tfi_path_unknown;
    return *name ? tfi_path_of(parent, name) : parent;
}

static const struct tfi_path *file_named(const struct tfi_io *io)
{
    bool relative = io->here && io->path && io->path[0] != '/';
    return relative ? tfi_path_of(io->here, io->path) : named(io->dir, io->path);
}

/* True if a sleeping process wakes for this call by name. */
static TFI_COLD bool wakes(const struct tfi_io *io)
{
    return tfi_is_readable(io->path) && named(io->dir, io->path)->wanted;
}

static inline bool is_asleep(void)
{
    return tfi_self == NULL || tfi_self->gen != __atomic_load_n(&tfi_process->gen, __ATOMIC_RELAXED);
}

/* Finds the file of a call that names none; false if nothing of the call is of interest. */
static inline bool find_file(struct tfi_io *io)
{
    if (io->target == TFI_IO_STREAM) io->fd = io->stream ? io->stream->_fileno : -1;
    if (io->target == TFI_IO_ADDRESS) {
        io->file = tfi_mapped_file(io->address);
        return io->file != NULL;
    }
    if (io->target == TFI_IO_NONE) {
        io->file = tfi_path_unknown;
        return true;
    }
    if (io->fd < 0 && io->target == TFI_IO_STREAM) return false;
    io->file = io->fd < 0 ? tfi_path_unknown : tfi_fd_file(io->fd, &io->looked_up);
    return io->file->wanted || io->effect > TFI_IO_SEEKS;
}

/* Notes what calls that close take from the tables: another thread may get the same number as soon as it is free. */
static void before_closing(const struct tfi_io *io)
{
    if (io->effect == TFI_IO_CLOSES) tfi_fd_forget(io->fd);
    if (io->effect == TFI_IO_UNMAPS) tfi_unmapped(io->address, io->bytes);
}

/* Takes a call back that is not recorded after all. */
static void take_back(struct tfi_call *call)
{
    struct tfi_thread *t = call->thread;
    call->thread = NULL;
    if (t->gen != __atomic_load_n(&tfi_process->gen, __ATOMIC_RELAXED)) return;
    t->calls = call->depth;
    __atomic_store_n(&t->slot->calls, call->depth, __ATOMIC_RELEASE);
}

/* True if io, which is not recorded now, may be recorded after the look at triggers and times that a call causes. A
 * process sleeps on if only a trigger could switch io on. */
static bool may_begin(void)
{
    return !tfi_recording(TFI_RECORDING_ANY) && (!is_asleep() || tfi_config.activities & TFI_ACTIVITY_IO);
}

/* Begins the record of a call. Calls that a jump has left are counted here. */
static inline bool begin_io(struct tfi_io *io, enum tfi_hook hook, uintptr_t frame)
{
    uint32_t before = tfi_self ? tfi_self->calls : 0;
    if (!tfi_recording(TFI_ACTIVITY_IO) && !may_begin()) return false;
    if (!tfi_call_enter_from(&io->call, hook, frame)) return false;
    if (TFI_UNLIKELY(io->call.depth < before)) tfi_count_drop(TFI_DROP_LEFT, before - io->call.depth);
    if (TFI_UNLIKELY(!tfi_recording(TFI_ACTIVITY_IO))) take_back(&io->call);
    return io->call.thread != NULL;
}

bool tfi_io_enter_from(struct tfi_io *io, enum tfi_hook hook, uintptr_t frame)
{
    bool changes = io->effect > TFI_IO_SEEKS, recorded;
    if (TFI_UNLIKELY(tfi_inside)) return false;
    if (TFI_UNLIKELY(tfi_vforked) && tfi_vforked_here()) return false;
    if (io->target == TFI_IO_PATH) {
        recorded = !is_asleep() || wakes(io);
    } else {
        if (!find_file(io)) return false;
        recorded = io->file->wanted;
    }
    if (changes && tfi_in_shared_child()) return false;
    recorded = recorded && begin_io(io, hook, frame);
    if (!recorded && !changes) return false;
    io->position = io->effect == TFI_IO_ADVANCES || io->effect == TFI_IO_SEEKS ? tfi_fd_position(io->fd) : -1;
    if (changes) before_closing(io);
    if (io->effect == TFI_IO_MOVES_AWAY) io->here = tfi_path_here();
    return true;
}

/* ---- after the call ---- */

/* True if the kernel has read the names that the call passed: it then did not fail before. */
static bool names_were_read(int error)
{
    return error != EFAULT && error != EINVAL && error != ENOSYS;
}

/* The return value as the record has it; sets `error` to 0 unless the call failed. */
static int64_t result_of(const struct tfi_io *io, int64_t result, int *error)
{
    bool failed = result < 0;
    int64_t value = result;
    switch ((enum tfi_io_result)io->result) {
    case TFI_IO_PLAIN: break;
    case TFI_IO_IGNORED:
    case TFI_IO_FORMATTED: break;
    case TFI_IO_POINTER: failed = !result, value = failed ? -1 : 1; break;
    case TFI_IO_MAPPED: failed = result == -1; break;
    case TFI_IO_ERRNO:
        failed = result != 0, value = failed ? -1 : 0;
        *error = (int)result;
        break;
    case TFI_IO_ITEMS:
        value = result * (int64_t)io->item;
        failed = (uint64_t)value < io->bytes && io->stream->_flags & STREAM_ERROR;
        break;
    case TFI_IO_TEXT:
        failed = !result && io->stream->_flags & STREAM_ERROR;
        value = result ? (int64_t)strlen((const char *)result) : failed ? -1 : 0;
        break;
    case TFI_IO_LINE:
        failed = result < 0 && io->stream->_flags & STREAM_ERROR;
        value = result >= 0 ? result : failed ? -1 : 0;
        break;
    case TFI_IO_PUT: value = failed ? -1 : (int64_t)io->bytes; break;
    case TFI_IO_NEW: failed = !result, value = failed ? -1 : io->other_fd; break;
    }
    if (!failed) *error = 0;
    return value;
}

/* The requested bytes that are only known after the call: of formatted output, and of several buffers, which the kernel
 * has read if it transferred anything. */
static void sum_parts(struct tfi_io *io, int64_t result)
{
    if (io->result == TFI_IO_FORMATTED && result > 0) io->bytes = (uint64_t)result;
    if (!io->parts || result < 0) return;
    for (uint64_t i = 0; i < io->count; i++) io->bytes += io->parts[i].iov_len;
}

/* Follows the call's effect on descriptors, mappings and the working directory. */
static void follow(const struct tfi_io *io, int64_t result)
{
    int fd = io->result == TFI_IO_NEW ? io->other_fd : (int)result;
    switch ((enum tfi_io_effect)io->effect) {
    case TFI_IO_ADVANCES: tfi_fd_advance(io->fd, result); break;
    case TFI_IO_SEEKS: tfi_fd_seek(io->fd, result); break;
    case TFI_IO_OPENS:
        tfi_fd_set(fd, io->file, io->flags & O_APPEND || io->result == TFI_IO_NEW ? TFI_POSITION_SHARED : 0);
        break;
    case TFI_IO_COPIES: tfi_fd_copied(io->fd, fd); break;
    case TFI_IO_MAPS: tfi_mapped((const void *)result, io->bytes, io->file); break;
    case TFI_IO_MOVES_AWAY: tfi_path_moved(); break;
    case TFI_IO_PAIRS:
        tfi_fd_forget(io->pair[0]);
        tfi_fd_forget(io->pair[1]);
        break;
    case TFI_IO_CLOSES:
    case TFI_IO_UNMAPS: break;
    }
}

/* A call that has returned: the values of its record that struct tfi_call lacks. */
struct finished {
    const struct tfi_io *io;
    const struct tfi_path *other;
    int64_t result, offset;
    int error;
};

static void write_io(struct tfi_thread *t, const struct tfi_call *call, uint64_t duration, const void *data)
{
    const struct finished *f = data;
    const struct tfi_io *io = f->io;
    uint32_t path = tfi_path_string(t, io->file);
    if (tfi_config.io_aggregate_ms) {
        struct tfi_sum sum = {.call = call,
                              .duration = duration,
                              .path = path,
                              .failed = f->error != 0,
                              .requested = io->bytes,
                              .moved = f->result > 0 ? (uint64_t)f->result : 0};
        if (tfi_sum_add(t, &sum)) return;
    }
    uint32_t other = f->other ? tfi_path_string(t, f->other) : 0;
    if (TFI_UNLIKELY(io->other && !f->other && io->other_dir == TFI_IO_NO_PATH && !f->error))
        other = tfi_string(io->other, strnlen(io->other, TFI_STRING_MAX));
    if (TFI_UNLIKELY(io->looked_up)) TFI_WRITE(t, descriptor, .fd = io->fd, .time = call->start, .path = path);
    struct tfi_rec_io *rec = TFI_RESERVE(t, io);
    if (TFI_UNLIKELY(!rec)) return;
    rec->func = call->func;
    rec->time = call->start;
    rec->duration = duration;
    rec->result = f->result;
    rec->bytes = io->bytes;
    rec->offset = f->offset;
    rec->path = path;
    rec->error = f->error;
    rec->fd = io->fd;
    rec->stack = call->stack;
    rec->flags = io->flags;
    rec->mode = io->mode;
    rec->other = other;
    rec->other_fd = io->has_other_fd ? io->other_fd : -1;
    tfi_commit(t, sizeof *rec);
}

static int64_t offset_of(const struct tfi_io *io, int64_t result)
{
    if (io->has_offset) return io->offset;
    if (io->offset_after && result >= 0) return (int64_t)*io->offset_after - result;
    return io->position >= 0 ? io->position : -1;
}

void tfi_io_leave(struct tfi_io *io, int64_t result)
{
    int before = errno, error = before;
    int64_t value = result_of(io, result, &error);
    bool known = !error || names_were_read(error);
    if (io->target == TFI_IO_PATH) io->file = known ? file_named(io) : tfi_path_unknown;
    if (!io->file->wanted && io->call.thread) take_back(&io->call);
    if (!error) follow(io, result);
    else if (error == EBADF && io->target == TFI_IO_FD) tfi_fd_forget(io->fd);
    if (io->call.thread) {
        sum_parts(io, value);
        struct finished f = {io, NULL, value, offset_of(io, value), error};
        if (io->other && io->other_dir != TFI_IO_NO_PATH && (!error || (known && tfi_is_readable(io->other))))
            f.other = named(io->other_dir, io->other); /* a bad first name hides a bad second one */
        else if (io->has_other_fd && io->other_fd >= 0) f.other = tfi_fd_file(io->other_fd, &(bool){false});
        tfi_call_leave_by(&io->call, write_io, &f);
    }
    errno = before;
}

/* Counts the calls in progress of a thread that ends: it was cancelled in them, or has jumped out of them. */
static void thread_ends(struct tfi_thread *t)
{
    if (t->calls) tfi_count_drop(TFI_DROP_LEFT, t->calls);
}

static const struct tfi_watcher watcher = {.emptied = thread_ends};

void tfi_io_constructor(void)
{
    if (tfi_config.secure || !tfi_config_may_have(TFI_ACTIVITY_IO) || !tfi_paths_init()) return;
    tfi_watch(&watcher);
    tfi_sums_constructor();
    __atomic_store_n(&tfi_io_on, true, __ATOMIC_RELEASE);
}
