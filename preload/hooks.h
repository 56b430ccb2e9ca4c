/* hooks.h - what the tables of intercepted functions expand to: numbers, originals, names, and the way round a call. */
#ifndef TFI_HOOKS_H
#define TFI_HOOKS_H

#include <errno.h>

#include "chunk.h"
#include "clock.h"
#include "config.h"
#include "schedule.h"
#include "stage.h"
#include "thread.h"

#define LIBRARY(name, soname) TFI_LIBRARY_##name,
#define HOOK(class, ret, symbol, params, args, names, values) TFI_HOOK_##symbol,
#define HOOK_VOID(class, ret, symbol, params, args, names, values) TFI_HOOK_##symbol,
#define HOOK_CUSTOM(class, ret, symbol, params, names) TFI_HOOK_##symbol,
#define HOOK_CUSTOM_VOID(class, ret, symbol, params, names) TFI_HOOK_##symbol,
enum tfi_hook {
#include "hooks.def"
    TFI_NR_HOOKS
};
#undef LIBRARY
#undef HOOK
#undef HOOK_VOID
#undef HOOK_CUSTOM
#undef HOOK_CUSTOM_VOID

struct tfi_hook_state {
    void *real;      /* the function we stand before; NULL until looked up */
    uint32_t string; /* its description in the trace, while gen is the process's */
    uint32_t gen;
};

extern struct tfi_hook_state tfi_hooks[];

/* Looks the original up for a caller, an address in the code that called the wrapper; NULL if there is none. Keeps
 * errno. */
void *tfi_hook_find(enum tfi_hook hook, const void *caller);

/* Any function of the library a row belongs to. */
void *tfi_hook_sibling(enum tfi_hook hook, const char *symbol, const void *caller);

/* True while several of a library's sonames are mapped. */
bool tfi_hook_several(enum tfi_hook library);

/* To be called when another copy of a library may have appeared: if there are several now, each call asks for its
 * caller's from here on. */
void tfi_hook_look_again(enum tfi_hook library);

/* To be called when dlsym gives a wrapper away: what it stands for where the caller's object needs no copy, and the file
 * that it lies in. */
void tfi_hook_given(enum tfi_hook hook, void *real, const char *file);

/* The row of that name in a library's table; the library itself if there is none. */
enum tfi_hook tfi_hook_named(enum tfi_hook library, const char *symbol);

/* The row's symbol, and its class. */
const char *tfi_hook_symbol(enum tfi_hook hook);
const char *tfi_hook_class(enum tfi_hook hook);

/* The place of an argument among the row's values, -1 if it is not there. */
int tfi_hook_argument(enum tfi_hook hook, const char *name);

/* Libraries of which a process may hold several copies: the CUDA runtime and CUPTI. */
#define TFI_COPIED_BEGIN TFI_LIBRARY_cudart
#define TFI_COPIED_END TFI_LIBRARY_c10

static inline bool tfi_hook_is_copied(enum tfi_hook hook)
{
    return hook > TFI_COPIED_BEGIN && hook < TFI_COPIED_END;
}

/* Pages of code whose object was looked at: in the low bits the copy that it needs, counted from 1, or 0. By library, as a
 * call of the one says nothing of the other; and by what dlsym has counted, as whoever has loaded an object asks it for a
 * symbol next: another one may lie in its place now. */
enum { TFI_PAGES = 1024, TFI_PAGE_BITS = 12, TFI_PAGE_COPY_BITS = 4, TFI_PAGE_KEY_BITS = 36 };
extern uintptr_t tfi_pages[TFI_PAGES];
extern uint64_t tfi_hook_loads;

static inline uintptr_t tfi_hook_page_key(enum tfi_hook hook, const void *caller)
{
    uintptr_t loads = __atomic_load_n(&tfi_hook_loads, __ATOMIC_RELAXED) << TFI_PAGE_COPY_BITS;
    uintptr_t page = (uintptr_t)caller >> TFI_PAGE_BITS << 1 | (hook > TFI_LIBRARY_cupti);
    return (loads << TFI_PAGE_KEY_BITS) >> TFI_PAGE_COPY_BITS | page;
}

static inline uintptr_t *tfi_hook_page(const void *caller)
{
    return &tfi_pages[((uintptr_t)caller >> TFI_PAGE_BITS) % TFI_PAGES];
}

static inline bool tfi_hook_page_known(enum tfi_hook hook, const void *caller)
{
    uintptr_t page = __atomic_load_n(tfi_hook_page(caller), __ATOMIC_RELAXED);
    return page >> TFI_PAGE_COPY_BITS == tfi_hook_page_key(hook, caller);
}

/* Inlined, so that the address is the wrapper's caller. */
static inline __attribute__((always_inline)) void *tfi_real(enum tfi_hook hook)
{
    const void *caller = __builtin_return_address(0);
    void *real = __atomic_load_n(&tfi_hooks[hook].real, __ATOMIC_RELAXED);
    bool known = !tfi_hook_is_copied(hook) || tfi_hook_page_known(hook, caller);
    return TFI_LIKELY(real != NULL && known) ? real : tfi_hook_find(hook, caller);
}

/* Interns the description, with the guard of the thread. */
uint32_t tfi_hook_string(struct tfi_thread *thread, enum tfi_hook hook);

/* The call stack where the row's class asks for one, launches and allocations; with the guard of the thread. */
uint32_t tfi_hook_stack(struct tfi_thread *thread, enum tfi_hook hook);

/* A thread for a call that finds none: wakes the process if it may. NULL: not recorded. */
struct tfi_thread *tfi_call_attach(void);

/* One call that is being recorded. */
struct tfi_call {
    struct tfi_thread *thread; /* NULL: only forward */
    uint64_t start;
    uint32_t func;
    uint32_t depth; /* calls this thread was in before */
    uint32_t stack; /* 0: none was taken */
};

/* True if what this thread does now is to be recorded in detail. */
static inline bool tfi_call_wanted(const struct tfi_thread *t)
{
    if (TFI_UNLIKELY(!tfi_recording(TFI_RECORDING_ANY)) && !tfi_recording_off(t, tfi_ticks())) return false;
    if (TFI_LIKELY(tfi_config.select == TFI_SELECT_ALL)) return true;
    if (tfi_config.select == TFI_SELECT_NOTHING) return false;
    if (__atomic_load_n(&t->stages, __ATOMIC_RELAXED)) return __atomic_load_n(&t->selected, __ATOMIC_RELAXED) > 0;
    return tfi_stage_detail_elsewhere();
}

/* Before the original is called: says so in the slot, where it survives a call that never returns. */
static inline __attribute__((always_inline)) struct tfi_call tfi_call_enter(enum tfi_hook hook)
{
    struct tfi_call call = {.thread = tfi_self};
    struct tfi_thread *t = call.thread;
    if (TFI_UNLIKELY(!t || t->gen != __atomic_load_n(&tfi_process->gen, __ATOMIC_RELAXED))) {
        if (tfi_config.select != TFI_SELECT_ALL && !tfi_process->gen) return (struct tfi_call){0};
        t = call.thread = tfi_call_attach();
        if (!t) return call;
    }
    if (!tfi_call_wanted(t)) return (struct tfi_call){0};
    if (tfi_guarded(t)) {
        tfi_count_drop(TFI_DROP_REENTRANT, 1);
        return (struct tfi_call){0};
    }
    call.func = TFI_LIKELY(tfi_hooks[hook].gen == t->gen) ? tfi_hooks[hook].string : tfi_hook_string(t, hook);
    if (TFI_UNLIKELY(tfi_recording(TFI_ACTIVITY_STACK))) call.stack = tfi_hook_stack(t, hook);
    tfi_calls_left(t);
    call.depth = t->calls++;
    call.start = tfi_ticks();
    if (call.depth < TFI_CALL_FRAMES) t->frame[call.depth] = (uintptr_t)__builtin_frame_address(0);
    if (call.depth < TFI_SLOT_CALLS) {
        t->slot->call[call.depth].func = call.func;
        t->slot->call[call.depth].start = call.start;
    }
    __atomic_store_n(&t->slot->calls, t->calls, __ATOMIC_RELEASE);
    return call;
}

/* The bits of the arguments that differ from those of a row; all bits if it can't stand for this call. */
static inline uint32_t tfi_call_changed(const struct tfi_rec_call *row, const struct tfi_call *call, int64_t result,
                                        const uint64_t *args, uint32_t count)
{
    uint64_t differs = 0;
    uint32_t changed = 0, many = 0;
    if (row->rec.size != sizeof *row + (size_t)count * 8 || row->func != call->func || row->result != result ||
        row->stack != call->stack)
        return ~0u;
    for (uint32_t i = 0; i < count; i++) differs |= row->args[i] ^ args[i];
    if (TFI_LIKELY(!differs)) return 0;
    for (uint32_t i = 0; i < count; i++) {
        changed |= (uint32_t)(row->args[i] != args[i]) << i;
        many += row->args[i] != args[i];
    }
    return many <= 1 + count / 4 ? changed : ~0u;
}

/* Writes the call as the difference to an earlier one of its chunk; false if that is not possible. `place`: where the
 * earlier one is remembered. */
static inline bool tfi_call_again(struct tfi_thread *t, uint16_t place, const struct tfi_call *call, uint64_t duration,
                                  int64_t result, const uint64_t *args, uint32_t count)
{
    const struct tfi_rec_call *row = (const struct tfi_rec_call *)((const uint8_t *)t->chunk + 8u * place);
    struct tfi_again *again = (struct tfi_again *)t->next;
    size_t size = sizeof *again;
    uint32_t changed = place ? tfi_call_changed(row, call, result, args, count) : ~0u, error = (uint32_t)errno;
    if (changed == ~0u || duration > UINT32_MAX || error > UINT16_MAX) return false;
    if ((size_t)(t->limit - t->next) < size + (size_t)count * 8) return false;
    for (uint32_t i = 0; changed >> i; i++) {
        if (!(changed >> i & 1)) continue;
        memcpy((uint8_t *)again + size, &args[i], 8);
        size += 8;
    }
    again->rec = (struct tfi_rec){TFI_ROW_AGAIN, (uint16_t)size};
    again->back = (uint16_t)((size_t)((uint8_t *)again - (const uint8_t *)row) / 8);
    again->error = (uint16_t)error;
    again->time = call->start;
    again->duration = (uint32_t)duration;
    again->changed = changed;
    tfi_commit(t, size);
    return true;
}

/* Where a thread remembers a call: by function and first argument, which of a launch is the kernel; or by function. */
static inline uint16_t *tfi_call_place(struct tfi_thread *t, uint64_t key)
{
    return &t->recent[key * 0x9e3779b97f4a7c15u >> 32 & (TFI_RECENT - 1)];
}

/* Writes the record. Programs make the same few calls over and over: one that an earlier row of the chunk describes
 * takes 24 bytes, a fifth of a launch's whole row, and with them a fifth of all that comes after. */
static inline void tfi_call_record(struct tfi_thread *t, const struct tfi_call *call, uint64_t duration, int64_t result,
                                   const uint64_t *args, uint32_t count)
{
    size_t size = sizeof(struct tfi_rec_call) + (size_t)count * 8;
    uint16_t *like = tfi_call_place(t, (uint64_t)call->func << 32 ^ (count ? args[0] : 0));
    if (TFI_LIKELY(tfi_call_again(t, *like, call, duration, result, args, count))) return;
    uint16_t *any = tfi_call_place(t, call->func);
    if (tfi_call_again(t, *any, call, duration, result, args, count)) return;
    struct tfi_rec_call *rec = tfi_reserve(t, size, TFI_KIND_call);
    if (TFI_UNLIKELY(!rec)) return;
    rec->func = call->func;
    rec->time = call->start;
    rec->duration = duration;
    rec->result = result;
    rec->error = errno;
    rec->stack = call->stack;
    memcpy(rec->args, args, (size_t)count * 8);
    tfi_commit(t, size);
    __atomic_signal_fence(__ATOMIC_SEQ_CST); /* a row that a jump has left is not there to be like */
    if (count < TFI_AGAIN_ARGS) *like = *any = (uint16_t)(((uint8_t *)rec - (uint8_t *)t->chunk) / 8);
}

/* After it: the record. The thread's errno is the call's own and stays so. */
static inline __attribute__((always_inline)) void tfi_call_leave(const struct tfi_call *call, int64_t result,
                                                                 const uint64_t *args, uint32_t count)
{
    struct tfi_thread *t = call->thread;
    uint64_t end = tfi_ticks();
    tfi_guard_set(t);
    if (TFI_LIKELY(t->gen == __atomic_load_n(&tfi_process->gen, __ATOMIC_RELAXED))) {
        tfi_call_record(t, call, end - call->start, result, args, count);
        t->calls = call->depth;
        __atomic_store_n(&t->slot->calls, call->depth, __ATOMIC_RELEASE);
    }
    tfi_guard_clear(t);
}

/* An argument as it goes into a record. */
#define TFI_U(x) ((uint64_t)(uintptr_t)(x))
#define TFI_VALUES(...) ((const uint64_t[]){__VA_ARGS__})
#define TFI_NR_VALUES(...) ((uint32_t)(sizeof(TFI_VALUES(__VA_ARGS__)) / 8))

/* The body of an ordinary wrapper. `missing` is what it returns where there is no original. Its own names end in _,
 * for parameters have names too. */
#define TFI_WRAP(ret, symbol, params, args, missing, values)                                                           \
    TFI_EXPORT ret symbol params                                                                                       \
    {                                                                                                                  \
        ret(*real_) params = (ret(*) params)tfi_real(TFI_HOOK_##symbol);                                               \
        if (TFI_UNLIKELY(!real_)) return missing;                                                                      \
        struct tfi_call call_ = tfi_call_enter(TFI_HOOK_##symbol);                                                     \
        if (!call_.thread) return real_ args;                                                                          \
        ret result_ = real_ args;                                                                                      \
        tfi_call_leave(&call_, (int64_t)(intptr_t)result_, TFI_VALUES values, TFI_NR_VALUES values);                   \
        return result_;                                                                                                \
    }

#define TFI_WRAP_VOID(symbol, params, args, values)                                                                    \
    TFI_EXPORT void symbol params                                                                                      \
    {                                                                                                                  \
        void(*real_) params = (void(*) params)tfi_real(TFI_HOOK_##symbol);                                             \
        if (TFI_UNLIKELY(!real_)) return;                                                                              \
        struct tfi_call call_ = tfi_call_enter(TFI_HOOK_##symbol);                                                     \
        real_ args;                                                                                                    \
        if (call_.thread) tfi_call_leave(&call_, 0, TFI_VALUES values, TFI_NR_VALUES values);                          \
    }

#endif
