/* uring.c - wraps liburing's exported functions: notes what a program submits, and looks for completions.
 *
 * Both are read from the rings, which the program must keep mapped during a call with the ring as argument. Nothing of
 * a ring is touched at another time. The layout of struct io_uring is part of the ABI of liburing 2. The functions of a
 * renamed, static or older liburing are only called.
 * Completions are looked for after each call, from the last one seen up to the tail. A function of the header may have
 * taken one before. It still lies in the ring, and is read unless the kernel may be about to write that place again. In
 * that case the ring's operations in flight are given up: their records have no result.
 * One lock protects all tables. A process has few rings, and a submission is a system call in any case.
 */
#include "io/uring.h"

#include <signal.h>
#include <string.h>

#include "base/process.h"
#include "base/sys.h"
#include "io/process.h"
#include "record/clock.h"
#include "record/enter.h"
#include "stage/wanted.h"

struct submissions {
    unsigned *head, *tail, *mask, *entries, *flags, *dropped, *array;
    struct io_uring_sqe *sqes;
    unsigned sqe_head, sqe_tail; /* filled by the program and not yet passed to the kernel */
    size_t size;
    void *start;
    unsigned pad[4];
};

struct completions {
    unsigned *head, *tail, *mask, *entries, *flags, *overflow;
    struct io_uring_cqe *cqes;
    size_t size;
    void *start;
    unsigned pad[4];
};

struct io_uring {
    struct submissions sq;
    struct completions cq;
    unsigned flags;
    int fd;
};

/* Flags of a ring, numbers because the builder's header may lack them. */
enum { LONG_SQE = 1 << 10, LONG_CQE = 1 << 11, MIXED_SIZES = 3 << 18 };

/* A ring that has had an operation on a file. */
struct ring {
    const struct io_uring *address; /* NULL: free */
    const void *cqes;               /* another value or descriptor: a new ring at the same address */
    int fd;
    unsigned noted; /* submissions before that one are noted */
    unsigned seen;  /* completions before that one were looked at */
};

static struct ring rings[TFI_RINGS];
static uint32_t gen; /* trace to which the tables belong */
static struct tfi_lock lock;

static bool is_usable(const struct io_uring *u)
{
    return u && u->sq.sqes && u->sq.mask && u->cq.cqes && u->cq.mask && u->cq.head && u->cq.tail &&
           !(u->flags & MIXED_SIZES);
}

static const struct io_uring_sqe *sqe_at(const struct io_uring *u, unsigned i)
{
    return &u->sq.sqes[(size_t)(i & *u->sq.mask) << !!(u->flags & LONG_SQE)];
}

/* Number of submissions from `from` on that the next call passes to the kernel. */
static unsigned left_from(const struct io_uring *u, unsigned from)
{
    unsigned n = u->sq.sqe_tail - from;
    return n <= *u->sq.mask + 1 ? n : 0;
}

/* True if the submissions have an operation on a file that is to be recorded. */
static bool has_wanted(const struct io_uring *u)
{
    struct tfi_uring_op op;
    unsigned n = left_from(u, u->sq.sqe_head);
    for (unsigned i = 0; i < n; i++)
        if (tfi_uring_describe(&op, sqe_at(u, u->sq.sqe_head + i)) && op.io.file->wanted) return true;
    return false;
}

/* Returns the index of a ring in the table, TFI_RINGS if it is not there. A caller that only asks whether it is there
 * needs no lock. */
static uint32_t index_of(const struct io_uring *u)
{
    uint32_t i = 0;
    if (__atomic_load_n(&gen, __ATOMIC_ACQUIRE) != __atomic_load_n(&tfi_process->gen, __ATOMIC_RELAXED))
        return TFI_RINGS;
    while (i < TFI_RINGS && __atomic_load_n(&rings[i].address, __ATOMIC_ACQUIRE) != u) i++;
    return i;
}

/* Forgets the rings and operations of an earlier trace, or of a parent process. */
static void use_trace(const struct tfi_thread *t)
{
    if (gen == t->gen) return;
    for (unsigned i = 0; i < TFI_RINGS; i++) rings[i].address = NULL;
    tfi_uring_reset();
    __atomic_store_n(&gen, t->gen, __ATOMIC_RELEASE);
}

static struct ring *ring_of(struct tfi_thread *t, const struct io_uring *u)
{
    use_trace(t);
    uint32_t i = index_of(u), place = 0;
    while (place < TFI_RINGS && rings[place].address) place++;
    if (i < TFI_RINGS) place = i;
    if (place == TFI_RINGS) return NULL;
    struct ring *r = &rings[place];
    if (i < TFI_RINGS && r->cqes == u->cq.cqes && r->fd == u->fd) return r;
    if (i < TFI_RINGS) tfi_uring_give_up(t, i);
    *r = (struct ring){NULL, u->cq.cqes, u->fd, u->sq.sqe_head, __atomic_load_n(u->cq.head, __ATOMIC_ACQUIRE)};
    __atomic_store_n(&r->address, u, __ATOMIC_RELEASE);
    return r;
}

/* Looks at the completions since the last look. */
static void look(struct tfi_thread *t, struct ring *r, const struct io_uring *u)
{
    unsigned tail = __atomic_load_n(u->cq.tail, __ATOMIC_ACQUIRE), head = __atomic_load_n(u->cq.head, __ATOMIC_ACQUIRE);
    unsigned mask = *u->cq.mask, from = r->seen, safe = (mask + 1) / 2;
    bool missed = (int)(head - from) > 0 && tail - from > safe;
    if (tail - head > mask + 1) return;
    if (tail - from > mask + 1 || missed) from = tail - head > safe ? head : tail - safe;
    for (; from != tail; from++) {
        const struct io_uring_cqe *cqe = &u->cq.cqes[(size_t)(from & mask) << !!(u->flags & LONG_CQE)];
        if (!(cqe->flags & IORING_CQE_F_MORE)) tfi_uring_complete(t, (uint32_t)(r - rings), cqe->user_data, cqe->res);
    }
    r->seen = tail;
    if (missed) tfi_uring_give_up(t, (uint32_t)(r - rings));
}

/* Notes one submission. */
static void note(struct tfi_thread *t, const struct ring *r, const struct io_uring_sqe *sqe, bool recorded)
{
    struct tfi_uring_op op;
    bool is_file = tfi_uring_describe(&op, sqe);
    recorded = recorded && is_file && op.io.file->wanted;
    if (recorded) {
        op.io.call = (struct tfi_call){.start = tfi_ticks(), .func = tfi_uring_name(t, op.row)};
        tfi_path_string(t, op.io.file);
    }
    bool never_completes = sqe->flags & IOSQE_CQE_SKIP_SUCCESS;
    if (r && !never_completes) tfi_uring_add(t, (uint32_t)(r - rings), sqe->user_data, &op, recorded);
    else if (recorded) tfi_uring_write(t, &op, TFI_IO_RESULT_UNKNOWN);
}

/* Notes all submissions of a call and looks for completions. */
static void note_all(struct tfi_thread *t, const struct io_uring *u)
{
    bool recorded = tfi_recording(TFI_ACTIVITY_IO) && tfi_call_wanted(t);
    struct ring *r = ring_of(t, u);
    unsigned from = u->sq.sqe_head;
    if (r) look(t, r, u);
    if (r && r->noted - from <= left_from(u, from)) from = r->noted;
    unsigned n = left_from(u, from);
    for (unsigned i = 0; i < n; i++) note(t, r, sqe_at(u, from + i), recorded);
    if (r) r->noted = from + n;
}

/* Follows the effects of submissions on descriptors, whether they are recorded or not. */
static void follow(const struct io_uring *u)
{
    unsigned n = left_from(u, u->sq.sqe_head);
    for (unsigned i = 0; i < n; i++) {
        const struct io_uring_sqe *sqe = sqe_at(u, u->sq.sqe_head + i);
        bool moves = sqe->opcode == IORING_OP_READ || sqe->opcode == IORING_OP_WRITE ||
                     sqe->opcode == IORING_OP_READV || sqe->opcode == IORING_OP_WRITEV;
        if (sqe->flags & IOSQE_FIXED_FILE) continue;
        if (sqe->opcode == IORING_OP_CLOSE && !sqe->file_index) tfi_fd_forget(sqe->fd);
        if (moves && sqe->off == UINT64_MAX) tfi_fd_seek(sqe->fd, TFI_POSITION_UNKNOWN);
    }
}

typedef void ring_action(struct tfi_thread *thread, const struct io_uring *ring);

/* Enters the recorder, takes the lock and acts. */
static void act(enum tfi_why why, const struct io_uring *u, ring_action *action)
{
    int error = errno;
    struct tfi_thread *t = tfi_enter(why);
    if (t && tfi_lock(&lock)) {
        action(t, u);
        tfi_unlock(&lock);
    }
    if (t) tfi_leave(t);
    errno = error;
}

static void look_again(struct tfi_thread *t, const struct io_uring *u)
{
    use_trace(t);
    uint32_t i = index_of(u);
    if (i < TFI_RINGS) look(t, &rings[i], u);
}

static void leave_ring(struct tfi_thread *t, const struct io_uring *u)
{
    look_again(t, u);
    uint32_t i = index_of(u);
    if (i == TFI_RINGS) return;
    tfi_uring_give_up(t, i);
    __atomic_store_n(&rings[i].address, NULL, __ATOMIC_RELEASE);
}

static bool is_ours(const struct io_uring *u)
{
    if (!is_usable(u) || TFI_UNLIKELY(tfi_inside)) return false;
    return !(TFI_UNLIKELY(tfi_vforked) && tfi_vforked_here());
}

static TFI_COLD void before(const struct io_uring *u, bool submits)
{
    if (!submits || !is_ours(u) || !left_from(u, u->sq.sqe_head)) return;
    bool wanted = tfi_io_may_record() && has_wanted(u);
    if (wanted || index_of(u) < TFI_RINGS) act(wanted ? TFI_WHY_CALL : TFI_WHY_NONE, u, note_all);
    follow(u);
}

static TFI_COLD void after(const struct io_uring *u)
{
    if (is_ours(u) && index_of(u) < TFI_RINGS) act(TFI_WHY_NONE, u, look_again);
}

void tfi_uring_finish(void)
{
    struct tfi_thread *t = tfi_self;
    if (!gen) return;
    if (!t || t->gen != gen || tfi_guard_may_hold(t))
        for (t = tfi_threads(); t && (t->gen != gen || tfi_guard_may_hold(t)); t = t->all) {
        }
    if (t) tfi_uring_give_up(t, TFI_RINGS);
}

/* ---- wrappers ---- */

/* True if calls are recorded, and `real` is a function of a library of the table: those alone are kept. */
static inline bool is_known(enum tfi_hook hook, const void *real)
{
    return TFI_UNLIKELY(tfi_io_on) && real == __atomic_load_n(&tfi_hooks[hook].real, __ATOMIC_RELAXED);
}

#define SUBMITS true
#define WAITS false

#define LIBRARY(name, soname)
#define HOOK(class, ret, symbol, params, args, names, values)                                                          \
    TFI_EXPORT ret symbol params                                                                                       \
    {                                                                                                                  \
        ret(*real_) params = (ret(*) params)tfi_real(TFI_HOOK_##symbol);                                               \
        if (TFI_UNLIKELY(!real_)) return -ENOSYS;                                                                      \
        if (!is_known(TFI_HOOK_##symbol, (const void *)real_)) return real_ args;                                      \
        before(ring, TFI_IO_EACH values);                                                                              \
        ret result_ = real_ args;                                                                                      \
        after(ring);                                                                                                   \
        return result_;                                                                                                \
    }
#define HOOK_CUSTOM(class, ret, symbol, params, names) TFI_EXPORT ret symbol params;
#define HOOK_CUSTOM_VOID(class, ret, symbol, params, names) TFI_EXPORT ret symbol params;
#include "io/uring.def"

unsigned io_uring_peek_batch_cqe(struct io_uring *ring, struct io_uring_cqe **cqes, unsigned n)
{
    unsigned (*real)(struct io_uring *, struct io_uring_cqe **, unsigned) =
        (unsigned (*)(struct io_uring *, struct io_uring_cqe **, unsigned))tfi_real(TFI_HOOK_io_uring_peek_batch_cqe);
    if (TFI_UNLIKELY(!real)) return 0;
    unsigned got = real(ring, cqes, n);
    if (is_known(TFI_HOOK_io_uring_peek_batch_cqe, (const void *)real)) after(ring);
    return got;
}

void io_uring_queue_exit(struct io_uring *ring)
{
    void (*real)(struct io_uring *) = (void (*)(struct io_uring *))tfi_real(TFI_HOOK_io_uring_queue_exit);
    if (TFI_UNLIKELY(!real)) return;
    if (is_known(TFI_HOOK_io_uring_queue_exit, (const void *)real) && is_ours(ring) && index_of(ring) < TFI_RINGS)
        act(TFI_WHY_NONE, ring, leave_ring);
    real(ring);
}
