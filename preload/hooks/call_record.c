/* call_record.c - records a call: lists it in the thread's slot before the original runs, writes its record afterwards.
 *
 * A thread that dies in the original leaves the call in its slot, in the shared mapping.
 */
#include "hooks/call_record.h"

#include "base/process.h"
#include "flight/failed_calls.h"
#include "record/chunk.h"
#include "record/clock.h"
#include "stage/recording_state.h"

static inline __attribute__((always_inline)) bool begin(struct tfi_call *call, enum tfi_hook hook, uintptr_t frame,
                                                        bool always)
{
    struct tfi_thread *t = tfi_self;
    call->thread = NULL;
    if (TFI_UNLIKELY(!t || t->gen != __atomic_load_n(&tfi_process->gen, __ATOMIC_RELAXED))) {
        if (tfi_config.select != TFI_SELECT_ALL && !tfi_process->gen) return false;
        t = tfi_call_attach();
        if (!t) return false;
    }
    if (!always && !tfi_call_wanted(t)) return false;
    if (TFI_UNLIKELY(tfi_guard_frame(t) != 0) && tfi_guard_holds(t, frame)) {
        tfi_count_drop(TFI_DROP_REENTRANT, 1);
        return false;
    }
    call->thread = t;
    call->func = TFI_LIKELY(tfi_hooks[hook].gen == t->gen) ? tfi_hooks[hook].string : tfi_hook_string(t, hook);
    call->stack = TFI_UNLIKELY(tfi_recording(TFI_ACTIVITY_STACK)) ? tfi_hook_stack(t, hook) : 0;
    tfi_calls_left(t, frame);
    call->depth = t->calls++;
    call->start = tfi_ticks();
    if (call->depth < TFI_CALL_FRAMES) t->frame[call->depth] = frame;
    if (call->depth < TFI_SLOT_CALLS) {
        t->slot->call[call->depth].func = call->func;
        t->slot->call[call->depth].start = call->start;
    }
    __atomic_store_n(&t->slot->calls, t->calls, __ATOMIC_RELEASE);
    return true;
}

bool tfi_call_enter_from(struct tfi_call *call, enum tfi_hook hook, uintptr_t frame)
{
    return begin(call, hook, frame, false);
}

TFI_COLD bool tfi_call_enter_always_from(struct tfi_call *call, enum tfi_hook hook, uintptr_t frame)
{
    return begin(call, hook, frame, true);
}

/* The bits of the arguments that differ from those of a row; all bits if the call can't be written as a repetition of
 * it. */
static inline uint32_t changed_bits(const struct tfi_rec_call *row, const struct tfi_call *call, int64_t result,
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

/* Writes the call as the difference to an earlier one of its chunk; false if that is not possible. `place` is the
 * earlier row's offset in the chunk, in units of 8 bytes; 0: none. */
static inline bool write_again(struct tfi_thread *t, uint16_t place, const struct tfi_call *call, uint64_t duration,
                               int64_t result, const uint64_t *args, uint32_t count)
{
    const struct tfi_rec_call *row = (const struct tfi_rec_call *)((const uint8_t *)t->chunk + 8u * place);
    struct tfi_again *again = (struct tfi_again *)t->next;
    size_t size = sizeof *again;
    uint32_t changed = place ? changed_bits(row, call, result, args, count) : ~0u, error = (uint32_t)errno;
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

/* The place where a thread remembers a call: by function and first argument (the kernel of a launch), or by
 * function. */
static inline uint16_t *place_of(struct tfi_thread *t, uint64_t key)
{
    return &t->recent[key * 0x9e3779b97f4a7c15u >> 32 & (TFI_RECENT - 1)];
}

/* Writes the record. Programs repeat the same few calls: a call that an earlier row of the chunk describes takes 24
 * bytes, a fifth of a launch's whole row, and the later work on the rows shrinks as much. */
static inline void write_call(struct tfi_thread *t, const struct tfi_call *call, uint64_t duration, int64_t result,
                              const uint64_t *args, uint32_t count)
{
    size_t size = sizeof(struct tfi_rec_call) + (size_t)count * 8;
    uint16_t *like = place_of(t, (uint64_t)call->func << 32 ^ (count ? args[0] : 0));
    if (TFI_LIKELY(write_again(t, *like, call, duration, result, args, count))) return;
    uint16_t *any = place_of(t, call->func);
    if (write_again(t, *any, call, duration, result, args, count)) return;
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
    __atomic_signal_fence(__ATOMIC_SEQ_CST); /* remember committed rows only: a jump may leave this function before */
    if (count < TFI_AGAIN_ARGS) *like = *any = (uint16_t)(((uint8_t *)rec - (uint8_t *)t->chunk) / 8);
}

void tfi_call_leave(const struct tfi_call *call, int64_t result, const uint64_t *args, uint32_t count)
{
    struct tfi_thread *t = call->thread;
    uint64_t end = tfi_ticks();
    tfi_guard_set(t);
    if (TFI_LIKELY(t->gen == __atomic_load_n(&tfi_process->gen, __ATOMIC_RELAXED))) {
        write_call(t, call, end - call->start, result, args, count);
        t->calls = call->depth;
        __atomic_store_n(&t->slot->calls, call->depth, __ATOMIC_RELEASE);
        if (TFI_UNLIKELY(result != 0) && tfi_config.mode == TFI_MODE_FLIGHT)
            tfi_flight_result(t, call->func, call->start, end, result);
    }
    tfi_guard_clear(t);
}

void tfi_call_leave_by(const struct tfi_call *call, tfi_call_writer *write, const void *data)
{
    struct tfi_thread *t = call->thread;
    uint64_t end = tfi_ticks();
    tfi_guard_set(t);
    if (TFI_LIKELY(t->gen == __atomic_load_n(&tfi_process->gen, __ATOMIC_RELAXED))) {
        write(t, call, end - call->start, data);
        t->calls = call->depth;
        __atomic_store_n(&t->slot->calls, call->depth, __ATOMIC_RELEASE);
    }
    tfi_guard_clear(t);
}
