/* call_record.h - records a call of an intercepted function. */
#ifndef TFI_CALL_RECORD_H
#define TFI_CALL_RECORD_H

#include "hooks/hooks.h"

/* One call that is being recorded. */
struct tfi_call {
    struct tfi_thread *thread; /* NULL: only forward */
    uint64_t start;
    uint32_t func;
    uint32_t depth; /* calls in progress in this thread before it */
    uint32_t stack; /* 0: none was taken */
};

/* Begins a recorded call, before the original runs: lists it in the slot, where it survives a call that never returns.
 * False, with no thread in `call`, if the call is not recorded. `frame` is the frame address of the wrapper, or of a
 * function that it calls at the same depth. */
bool tfi_call_enter_from(struct tfi_call *call, enum tfi_hook hook, uintptr_t frame);

static inline __attribute__((always_inline)) bool tfi_call_enter(struct tfi_call *call, enum tfi_hook hook)
{
    return tfi_call_enter_from(call, hook, (uintptr_t)__builtin_frame_address(0));
}

/* The same, but records the call in every stage and at every time: what it makes may be used in a selected stage. */
bool tfi_call_enter_always_from(struct tfi_call *call, enum tfi_hook hook, uintptr_t frame);

static inline __attribute__((always_inline)) bool tfi_call_enter_if(struct tfi_call *call, enum tfi_hook hook,
                                                                    bool always)
{
    uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
    return TFI_UNLIKELY(always) ? tfi_call_enter_always_from(call, hook, frame)
                                : tfi_call_enter_from(call, hook, frame);
}

/* Ends a recorded call, after the original has returned: writes its record. Keeps errno, which is the call's own. */
void tfi_call_leave(const struct tfi_call *call, int64_t result, const uint64_t *args, uint32_t count);

/* The same for a call with a record of another kind: `write` writes it, with the thread's guard set. */
typedef void tfi_call_writer(struct tfi_thread *thread, const struct tfi_call *call, uint64_t duration,
                             const void *data);
void tfi_call_leave_by(const struct tfi_call *call, tfi_call_writer *write, const void *data);

/* Turns an argument into a record's value. */
#define TFI_U(x) ((uint64_t)(uintptr_t)(x))
#define TFI_VALUES(...) ((const uint64_t[]){__VA_ARGS__})
#define TFI_NR_VALUES(...) ((uint32_t)(sizeof(TFI_VALUES(__VA_ARGS__)) / 8))

/* The body of an ordinary wrapper, which returns `missing` if there is no original. Its local names end in _, so that
 * they differ from the parameters' names. */
#define TFI_WRAP(ret, symbol, params, args, missing, values)                                                           \
    TFI_EXPORT ret symbol params                                                                                       \
    {                                                                                                                  \
        ret(*real_) params = (ret(*) params)tfi_real(TFI_HOOK_##symbol);                                               \
        if (TFI_UNLIKELY(!real_)) return missing;                                                                      \
        struct tfi_call call_;                                                                                         \
        if (!tfi_call_enter(&call_, TFI_HOOK_##symbol)) return real_ args;                                             \
        ret result_ = real_ args;                                                                                      \
        tfi_call_leave(&call_, (int64_t)(intptr_t)result_, TFI_VALUES values, TFI_NR_VALUES values);                   \
        return result_;                                                                                                \
    }

#define TFI_WRAP_VOID(symbol, params, args, values)                                                                    \
    TFI_EXPORT void symbol params                                                                                      \
    {                                                                                                                  \
        void(*real_) params = (void(*) params)tfi_real(TFI_HOOK_##symbol);                                             \
        if (TFI_UNLIKELY(!real_)) return;                                                                              \
        struct tfi_call call_;                                                                                         \
        bool recorded_ = tfi_call_enter(&call_, TFI_HOOK_##symbol);                                                    \
        real_ args;                                                                                                    \
        if (recorded_) tfi_call_leave(&call_, 0, TFI_VALUES values, TFI_NR_VALUES values);                             \
    }

#endif
