/* nccl_calls.c - the steps before and after a call of NCCL: counts collectives, and records what is wanted.
 *
 * Every collective is counted in its communicator, recorded or not, so that one number means the same collective on all
 * ranks, whatever stages each of them selected. A captured one is recorded in every stage. NCCL calls some functions of
 * its own through their symbols (ncclBcast calls ncclBroadcast): a call from NCCL's own code is only forwarded, or it
 * would count twice. If NCCL jumps to such a function as its last step, the caller seems to be the wrapper that called
 * NCCL. A call from our own code is therefore only forwarded too.
 * The slot of a thread says which collective it is in, until the call has returned.
 */
#include "nccl/nccl_calls.h"

#include <dlfcn.h>
#include <link.h>

#include "base/process.h"
#include "control/config.h"
#include "control/schedule.h"
#include "cuda/graphs.h"
#include "flight/failed_calls.h"
#include "hooks/copies.h"
#include "nccl/plugin.h"
#include "record/enter.h"

/* ---- whether a call is noted ---- */

/* The memory of NCCL's own code; no bytes before the first call, or where NCCL is part of another library. */
static struct {
    uintptr_t low, bytes;
    uint32_t known;
} library;

/* The linker defines these for our own library. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));

struct search {
    uintptr_t address, low, bytes;
};

static int find_object(struct dl_phdr_info *object, size_t size, void *data)
{
    struct search *s = data;
    (void)size;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        uintptr_t low = object->dlpi_addr + part->p_vaddr;
        if (part->p_type != PT_LOAD || s->address - low >= part->p_memsz) continue;
        s->low = low;
        s->bytes = part->p_memsz;
        return 1;
    }
    return 0;
}

/* Finds the code of NCCL. A library that contains NCCL among other things calls it as any program does. */
static TFI_COLD void find_library(enum tfi_hook hook)
{
    Dl_info info;
    int error = errno;
    struct search s = {.address = (uintptr_t)tfi_hooks[hook].real};
    if (!s.address) return;
    if (dladdr((void *)s.address, &info) && info.dli_fname &&
        (tfi_copy_is(info.dli_fname, "libnccl") || tfi_copy_is(info.dli_fname, "librccl")) &&
        dl_iterate_phdr(find_object, &s)) {
        __atomic_store_n(&library.low, s.low, __ATOMIC_RELAXED);
        __atomic_store_n(&library.bytes, s.bytes, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&library.known, 1, __ATOMIC_RELEASE);
    errno = error;
}

/* True if NCCL may be recorded in this process. The first call decides for good. */
static inline bool is_activity(void)
{
    static uint8_t known; /* 1 no, 2 yes */
    uint8_t state = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (TFI_UNLIKELY(!state)) {
        tfi_prepare();
        state = tfi_config_may_have(TFI_ACTIVITY_NCCL) ? 2 : 1;
        if (__atomic_exchange_n(&known, state, __ATOMIC_RELAXED) == 0) tfi_nccl_plugin_note();
    }
    return state == 2;
}

bool tfi_nccl_noted(enum tfi_hook hook, const void *caller)
{
    if (!is_activity()) return false;
    if (TFI_UNLIKELY(!__atomic_load_n(&library.known, __ATOMIC_ACQUIRE))) find_library(hook);
    uintptr_t own = (uintptr_t)__ehdr_start, own_bytes = (uintptr_t)_end - own;
    return (uintptr_t)caller - library.low >= library.bytes && (uintptr_t)caller - own >= own_bytes;
}

/* True if the process is awake, or a call may wake it. */
static inline bool may_record(void)
{
    if (tfi_config.select == TFI_SELECT_ALL || __atomic_load_n(&tfi_process->gen, __ATOMIC_RELAXED)) return true;
    tfi_note_work();
    return false;
}

/* True unless recording is on without NCCL. While it is off, the schedule looks whether it is to begin. */
static inline bool is_recorded(void)
{
    uint32_t now = __atomic_load_n(&tfi_recording_now, __ATOMIC_RELAXED);
    return (now & (TFI_RECORDING_ANY | TFI_ACTIVITY_NCCL)) != TFI_RECORDING_ANY;
}

/* While streams are captured, calls count in every stage: their replays may be in a selected one. */
bool tfi_nccl_begin(struct tfi_call *call, enum tfi_hook hook)
{
    return may_record() && is_recorded() &&
           tfi_call_enter_if(call, hook, __atomic_load_n(&tfi_graph_captures, __ATOMIC_RELAXED) != 0);
}

bool tfi_nccl_enter(struct tfi_call *call, enum tfi_hook hook, const void *caller)
{
    return tfi_nccl_noted(hook, caller) && tfi_nccl_begin(call, hook);
}

/* ---- communicators ---- */

uint64_t tfi_nccl_group(uint64_t comm)
{
    const struct tfi_communicator *c = tfi_communicator_find(comm);
    return c ? c->hash : 0;
}

void tfi_nccl_learn(struct tfi_communicator *c)
{
    int rank = -1, ranks = 0;
    if (c->ranks) return;
    int error = errno;
    int (*ask_rank)(uint64_t, int *) = tfi_hook_sibling(TFI_LIBRARY_nccl, "ncclCommUserRank", NULL);
    int (*ask_ranks)(uint64_t, int *) = tfi_hook_sibling(TFI_LIBRARY_nccl, "ncclCommCount", NULL);
    if (ask_rank && ask_ranks && ask_rank(c->handle, &rank) == 0 && ask_ranks(c->handle, &ranks) == 0 && ranks > 0) {
        c->rank = rank;
        __atomic_store_n(&c->ranks, (uint32_t)ranks, __ATOMIC_RELEASE);
    }
    errno = error;
}

/* The communicator of a collective; one that was made before we could see it belongs to an unknown group. */
static inline struct tfi_communicator *communicator_of(uint64_t comm)
{
    struct tfi_communicator *c = tfi_communicator_find(comm);
    if (TFI_UNLIKELY(!c)) c = tfi_communicator_add(comm, 0, -1, 0);
    if (TFI_UNLIKELY(c && !c->ranks)) tfi_nccl_learn(c);
    return c;
}

static uint64_t sum(const size_t *counts, uint32_t ranks)
{
    uint64_t all = 0;
    for (uint32_t i = 0; counts && i < ranks; i++) all += counts[i];
    return all;
}

uint64_t tfi_nccl_larger(uint64_t comm, const size_t *sent, const size_t *received)
{
    const struct tfi_communicator *c = tfi_communicator_find(comm);
    uint32_t ranks = c ? c->ranks : 0;
    uint64_t out = sum(sent, ranks), in = sum(received, ranks);
    return out > in ? out : in;
}

/* ---- groups ---- */

void tfi_nccl_group_began(void)
{
    struct tfi_thread *t = tfi_self;
    if (t && t->gen == __atomic_load_n(&tfi_process->gen, __ATOMIC_RELAXED)) t->nccl_groups++;
}

void tfi_nccl_group_ended(void)
{
    struct tfi_thread *t = tfi_self;
    if (t && t->gen == __atomic_load_n(&tfi_process->gen, __ATOMIC_RELAXED) && t->nccl_groups) t->nccl_groups--;
}

/* ---- collectives ---- */

uint64_t tfi_nccl_type_bytes(uint32_t type)
{
    static const uint8_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return type < TFI_COUNT(bytes) ? bytes[type] : 0;
}

static inline uint64_t count_one(struct tfi_communicator *c, const struct tfi_collective *what)
{
    if (what->how >= TFI_COUNT_SENT) {
        enum tfi_direction direction = what->how == TFI_COUNT_SENT ? TFI_SENT : TFI_RECEIVED;
        return tfi_communicator_next(c, direction, (uint32_t)what->peer);
    }
    return __atomic_fetch_add(&c->sequence, 1, __ATOMIC_RELAXED);
}

/* A collective that NCCL refused was none: the next one gets its number. */
static TFI_COLD void count_back(const struct tfi_collective_call *call, const struct tfi_collective *what)
{
    uint64_t next = call->sequence + 1;
    struct tfi_communicator *c = call->communicator;
    if (!c || what->how >= TFI_COUNT_SENT || c->handle != what->comm) return;
    __atomic_compare_exchange_n(&c->sequence, &next, call->sequence, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

static inline void fill_slot(const struct tfi_collective_call *call, const struct tfi_collective *what)
{
    struct tfi_slot *slot = call->call.thread->slot;
    slot->collective.communicator = call->hash;
    slot->collective.sequence = call->sequence;
    slot->collective.bytes = call->bytes;
    slot->collective.peer = what->peer;
    slot->collective.count = what->count;
    slot->collective.type = what->type;
    slot->collective.reduction = what->reduction;
    __atomic_store_n(&slot->collective.call, call->call.depth + 1, __ATOMIC_RELEASE);
}

bool tfi_collective_enter(struct tfi_collective_call *call, enum tfi_hook hook, const struct tfi_collective *what,
                          const void *caller)
{
    if (!tfi_nccl_noted(hook, caller)) return false;
    struct tfi_communicator *c = call->communicator = communicator_of(what->comm);
    call->call.thread = NULL;
    call->hash = c ? c->hash : 0;
    call->rank = c ? c->rank : -1;
    call->ranks = c ? c->ranks : 0;
    call->sequence = c ? count_one(c, what) : 0;
    bool captured = TFI_UNLIKELY(__atomic_load_n(&tfi_graph_captures, __ATOMIC_RELAXED) != 0) &&
                    tfi_graphs_is_captured(what->stream);
    if (!may_record() || !is_recorded() || !tfi_call_enter_if(&call->call, hook, captured)) return true;
    call->bytes = what->count * tfi_nccl_type_bytes(what->type);
    if (what->how == TFI_COUNT_PART && call->ranks) call->bytes *= call->ranks;
    call->flags = call->call.thread->nccl_groups ? TFI_COLLECTIVE_GROUPED : 0;
    if (TFI_UNLIKELY(captured || tfi_graphs_is_captured(what->stream))) call->flags |= TFI_COLLECTIVE_CAPTURED;
    fill_slot(call, what);
    return true;
}

struct finished {
    const struct tfi_collective_call *call;
    const struct tfi_collective *what;
    int result;
};

static void write_collective(struct tfi_thread *t, const struct tfi_call *call, uint64_t duration, const void *data)
{
    const struct finished *f = data;
    __atomic_store_n(&t->slot->collective.call, 0, __ATOMIC_RELEASE);
    struct tfi_rec_collective *rec = TFI_RESERVE(t, collective);
    if (TFI_UNLIKELY(!rec)) return;
    rec->func = call->func;
    rec->time = call->start;
    rec->duration = duration;
    rec->communicator = f->call->hash;
    rec->sequence = f->call->sequence;
    rec->bytes = f->call->bytes;
    rec->count = f->what->count;
    rec->stream = f->what->stream;
    rec->type = f->what->type;
    rec->reduction = f->what->reduction;
    rec->peer = f->what->peer;
    rec->rank = f->call->rank;
    rec->ranks = f->call->ranks;
    rec->error = f->result;
    rec->flags = f->call->flags;
    rec->stack = call->stack;
    tfi_commit(t, sizeof *rec);
    if (TFI_UNLIKELY(f->result != 0) && tfi_config.mode == TFI_MODE_FLIGHT)
        tfi_flight_result(t, call->func, call->start, call->start + duration, f->result);
}

void tfi_collective_leave(const struct tfi_collective_call *call, const struct tfi_collective *what, int result)
{
    struct finished finished = {call, what, result};
    if (TFI_UNLIKELY(!tfi_nccl_done(result))) count_back(call, what);
    if (TFI_LIKELY(call->call.thread != NULL)) tfi_call_leave_by(&call->call, write_collective, &finished);
}
