/* buffers.c - keeps the buffers that CUPTI writes its records into, and defines the two callbacks for them.
 *
 * There are 32 buffers, mapped once; unused ones take no memory. The free ones are bits of a mask. Those that came
 * back are a list that is only pushed to and taken whole, so no callback ever waits. CUPTI must not be refused a
 * buffer (before 12.9 it crashes then), nor be given one that it holds. When all are out, it gets areas whose records
 * are only counted. When those are out too, the older releases get the last area again. Buffers of the program's own
 * client pass through here as well; see other_clients.c.
 */
#include <errno.h>

#include "base/process.h"
#include "base/sys.h"
#include "cupti/client.h"
#include "record/background.h"

#define BUFFERS 32u
#define BUFFER_BYTES (2u << 20)
#define DISCARDS 64u
#define DISCARD_BYTES (128u << 10)
#define MAY_BE_REFUSED 27u /* CUPTI 12.9 and newer drop the record */

static struct tfi_buffer buffers[BUFFERS];
static uint8_t *memory;             /* the buffers, then the areas */
static unsigned nr_buffers;         /* fewer if there is little address space */
static uint64_t free_mask;          /* atomic */
static uint64_t free_discards;      /* atomic */
static struct tfi_buffer *returned; /* atomic: pushed to by callbacks */
static void (*convert_others)(uint8_t *buffer, size_t valid);
static struct tfi_buffer *ready; /* taken from `returned`, oldest first; used by the token holder */

static size_t buffer_bytes(void)
{
    return (size_t)nr_buffers * BUFFER_BYTES;
}

static uint64_t ones(unsigned count)
{
    return count < 64 ? (1ull << count) - 1 : ~0ull;
}

bool tfi_buffers_init(void (*convert)(uint8_t *buffer, size_t valid))
{
    convert_others = convert;
    for (nr_buffers = memory ? nr_buffers : BUFFERS; !memory && nr_buffers >= BUFFERS / 4; nr_buffers /= 2)
        if ((memory = tfi_map(buffer_bytes() + (size_t)DISCARDS * DISCARD_BYTES))) break;
    if (!memory) nr_buffers = 0;
    if (!memory) return false;
    for (unsigned i = 0; i < nr_buffers; i++)
        buffers[i] = (struct tfi_buffer){.data = memory + (size_t)i * BUFFER_BYTES};
    returned = ready = NULL;
    free_mask = ones(nr_buffers);
    free_discards = ones(DISCARDS);
    return true;
}

/* Clears and returns one bit of a mask; -1 if there is none. */
static int take_bit(uint64_t *from)
{
    uint64_t mask = __atomic_load_n(from, __ATOMIC_ACQUIRE);
    while (mask) {
        uint64_t rest = mask & (mask - 1);
        if (__atomic_compare_exchange_n(from, &mask, rest, true, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            return __builtin_ctzll(mask);
    }
    return -1;
}

static void give_bit(uint64_t *to, unsigned bit)
{
    __atomic_or_fetch(to, 1ull << bit, __ATOMIC_RELEASE);
}

void tfi_buffers_free(struct tfi_buffer *buffer)
{
    give_bit(&free_mask, (unsigned)(buffer - buffers));
}

unsigned tfi_buffers_out(void)
{
    unsigned count = 0;
    for (unsigned i = 0; i < nr_buffers; i++) count += __atomic_load_n(&buffers[i].out, __ATOMIC_ACQUIRE);
    return count;
}

bool tfi_buffers_waiting(void)
{
    return __atomic_load_n(&ready, __ATOMIC_RELAXED) || __atomic_load_n(&returned, __ATOMIC_ACQUIRE);
}

struct tfi_buffer *tfi_buffers_take(void)
{
    if (!ready) { /* the list has the newest first */
        struct tfi_buffer *from = __atomic_exchange_n(&returned, NULL, __ATOMIC_ACQ_REL);
        while (from) {
            struct tfi_buffer *next = from->next;
            from->next = ready;
            ready = from;
            from = next;
        }
    }
    struct tfi_buffer *buffer = ready;
    if (buffer) ready = buffer->next;
    return buffer;
}

/* Returns NULL, or an area whose records are discarded. */
static uint8_t *take_discard(void)
{
    int i = take_bit(&free_discards);
    if (i < 0 && tfi_cupti_api.version >= MAY_BE_REFUSED) return NULL;
    return memory + buffer_bytes() + (size_t)(i < 0 ? (int)DISCARDS - 1 : i) * DISCARD_BYTES;
}

void tfi_buffers_request(uint8_t **buffer, size_t *size, size_t *max_records)
{
    int error = errno;
    __atomic_store_n(&tfi_cupti->requested, 1, __ATOMIC_RELEASE);
    *max_records = 0;
    if (tfi_other_request(buffer, size, max_records)) goto out;
    int own = take_bit(&free_mask);
    *buffer = own >= 0 ? buffers[own].data : take_discard();
    *size = own >= 0 ? BUFFER_BYTES : *buffer ? DISCARD_BYTES : 0;
    *max_records = 0;
    if (own >= 0) __atomic_store_n(&buffers[own].out, 1, __ATOMIC_RELEASE);
out:
    errno = error;
}

/* Takes back one of our buffers. */
static void take_back(struct tfi_buffer *own, size_t valid)
{
    uint32_t gen = __atomic_load_n(&tfi_process->gen, __ATOMIC_ACQUIRE);
    if (!gen) gen = __atomic_load_n(&tfi_cupti->gen, __ATOMIC_ACQUIRE); /* the trace that is being ended, if one is */
    __atomic_store_n(&own->out, 0, __ATOMIC_RELEASE);
    if (valid > BUFFER_BYTES) valid = 0;
    tfi_other_copy_records(own->data, valid);
    if (!gen || !valid) {
        tfi_buffers_free(own);
        return;
    }
    tfi_records_intern(own->data, valid);
    own->valid = valid;
    own->gen = gen;
    own->next = __atomic_load_n(&returned, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&returned, &own->next, own, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) continue;
    tfi_caller_signal();
}

static void count_discarded(unsigned i, uint8_t *buffer, size_t valid)
{
    if (tfi_cupti->on)
        tfi_count_drop(TFI_DROP_DEVICE_DISCARDED,
                       tfi_record_count(buffer, valid < DISCARD_BYTES ? valid : DISCARD_BYTES));
    give_bit(&free_discards, i);
}

void tfi_buffers_complete(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    int error = errno;
    uintptr_t place = (uintptr_t)buffer - (uintptr_t)memory;
    if (!memory || !buffer) return;
    if (place < buffer_bytes()) {
        take_back(&buffers[place / BUFFER_BYTES], valid);
    } else if (place < buffer_bytes() + (size_t)DISCARDS * DISCARD_BYTES) {
        count_discarded((unsigned)((place - buffer_bytes()) / DISCARD_BYTES), buffer, valid);
    } else {
        convert_others(buffer, valid);
        tfi_other_complete(context, stream, buffer, size, valid);
    }
    errno = error;
}
