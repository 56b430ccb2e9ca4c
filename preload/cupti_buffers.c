/* cupti_buffers.c - the buffers CUPTI writes its records into, and the two callbacks it asks and hands back with.
 *
 * Eight buffers, mapped once. Their free ones are bits of a mask, those that came back are a list that is only pushed to
 * and taken whole: no callback ever waits. CUPTI must never be refused a buffer (older ones crash), so when all are out
 * it gets one that is only counted. Buffers of the program's own client pass through here as well; see broker.c.
 */
#include <errno.h>

#include "cupti_client.h"
#include "sys.h"
#include "writer.h"

#define BUFFERS 8u
#define BUFFER_BYTES (2u << 20)
#define DISCARD_BYTES (256u << 10)

static struct tfi_buffer buffers[BUFFERS];
static uint8_t *memory;
static uint32_t free_mask;          /* atomic */
static struct tfi_buffer *returned; /* atomic: pushed to by callbacks */
static struct tfi_buffer *ready;    /* taken from there, oldest first: the token holder's */
static uint8_t discard[DISCARD_BYTES] __attribute__((aligned(64)));

bool tfi_buffers_init(void)
{
    if (!memory) memory = tfi_map((size_t)BUFFERS * BUFFER_BYTES);
    if (!memory) return false;
    for (unsigned i = 0; i < BUFFERS; i++) buffers[i] = (struct tfi_buffer){.data = memory + (size_t)i * BUFFER_BYTES};
    returned = ready = NULL;
    free_mask = (1u << BUFFERS) - 1;
    return true;
}

static struct tfi_buffer *take_free(void)
{
    uint32_t mask = __atomic_load_n(&free_mask, __ATOMIC_ACQUIRE);
    while (mask) {
        uint32_t rest = mask & (mask - 1);
        if (__atomic_compare_exchange_n(&free_mask, &mask, rest, true, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            return &buffers[__builtin_ctz(mask)];
    }
    return NULL;
}

void tfi_buffers_free(struct tfi_buffer *buffer)
{
    __atomic_or_fetch(&free_mask, 1u << (buffer - buffers), __ATOMIC_RELEASE);
}

unsigned tfi_buffers_out(void)
{
    unsigned count = 0;
    for (unsigned i = 0; i < BUFFERS; i++) count += __atomic_load_n(&buffers[i].out, __ATOMIC_ACQUIRE);
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

void tfi_buffers_request(uint8_t **buffer, size_t *size, size_t *max_records)
{
    int error = errno;
    __atomic_store_n(&tfi_cupti->requested, 1, __ATOMIC_RELEASE);
    *max_records = 0;
    if (tfi_broker_request(buffer, size, max_records)) goto out;
    struct tfi_buffer *own = take_free();
    *buffer = own ? own->data : discard;
    *size = own ? BUFFER_BYTES : DISCARD_BYTES;
    *max_records = 0;
    if (own) __atomic_store_n(&own->out, 1, __ATOMIC_RELEASE);
out:
    errno = error;
}

/* One of ours came back. */
static void take_back(struct tfi_buffer *own, size_t valid)
{
    uint32_t gen = __atomic_load_n(&tfi_process->gen, __ATOMIC_ACQUIRE);
    if (!gen) gen = __atomic_load_n(&tfi_cupti->gen, __ATOMIC_ACQUIRE); /* the trace that is being ended, if one is */
    __atomic_store_n(&own->out, 0, __ATOMIC_RELEASE);
    if (valid > BUFFER_BYTES) valid = 0;
    tfi_broker_copy(own->data, valid);
    if (!gen || !valid) {
        tfi_buffers_free(own);
        return;
    }
    tfi_records_intern(own->data, valid);
    own->valid = valid;
    own->gen = gen;
    own->next = __atomic_load_n(&returned, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&returned, &own->next, own, true, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) continue;
    tfi_writer_signal();
}

void tfi_buffers_complete(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    int error = errno;
    uintptr_t place = (uintptr_t)buffer - (uintptr_t)memory;
    if (place < (size_t)BUFFERS * BUFFER_BYTES) {
        take_back(&buffers[place / BUFFER_BYTES], valid);
    } else if (buffer == discard && tfi_cupti->on) {
        tfi_count_drop(TFI_DROP_DEVICE_DISCARDED,
                       tfi_record_count(buffer, valid < DISCARD_BYTES ? valid : DISCARD_BYTES));
    } else if (buffer && buffer != discard) {
        tfi_cupti_convert_now(buffer, valid);
        tfi_broker_complete(context, stream, buffer, size, valid);
    }
    errno = error;
}
