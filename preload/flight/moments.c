/* moments.c - chooses the moments of a run whose seconds before TFI_MODE=flight keeps in full.
 *
 * Any thread asks for a moment, in a table of fixed size; the background thread takes it from there. A moment keeps the
 * parts of the trace in front of its end, the newest first, as far as its share has room. Chunks that other threads had
 * open then are appended later, and keep their parts too.
 *
 * Slow stages have 5/8 of the room, and each at most 1/2. Of these the ones stay that took longest beyond what is usual:
 * a smaller excess gives way to a larger one, in the table and in the file. The last two errors have 1/8 each, and the
 * last trigger 1/8. What gives way, or finds no place, is counted.
 */
#include "flight/moments.h"

#include <string.h>

#include "record/pool.h"

#define WAITING 32u
#define NONE UINT32_MAX

struct moment {
    uint32_t state; /* of one that waits: FREE, TAKEN, READY */
    uint32_t cause; /* enum tfi_moment_cause; 0: no moment */
    uint32_t name;
    uint32_t flags;
    uint64_t start, end, usual;
    uint64_t from;  /* the trace has every record since */
    uint64_t begun; /* the last chunk that was begun before its end */
};

enum { FREE, TAKEN, READY };

/* A cause has so many places, and so many bytes for all its moments and for one, both in sixteenths of the room. */
struct quota {
    unsigned places, all, one;
};
static const struct quota quotas[TFI_MOMENT_END] = {
    [TFI_MOMENT_SLOW] = {5, 10, 8},
    [TFI_MOMENT_ERROR] = {2, 4, 2},
    [TFI_MOMENT_TRIGGER] = {1, 2, 2},
};

static struct {
    struct moment waiting[WAITING];
    struct moment kept[TFI_MOMENTS];
    uint64_t bytes, ticks;
    uint64_t asked;    /* moments that waited */
    uint64_t left_out; /* moments */
} all;

void tfi_moments_begin(uint64_t bytes, uint64_t ticks)
{
    all.bytes = bytes;
    all.ticks = ticks;
}

void tfi_moments_restart(void)
{
    memset(&all, 0, sizeof all);
}

/* How much a moment is worth beside others of its cause: the time beyond what is usual, or how late it came. */
static uint64_t worth_of(const struct moment *m)
{
    return m->cause == TFI_MOMENT_SLOW ? m->end - m->start - m->usual : m->end;
}

/* ---- asking ---- */

static bool change_state(struct moment *m, uint32_t from, uint32_t to)
{
    return __atomic_compare_exchange_n(&m->state, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* Takes a free place, or that of a moment of the same cause that is worth less. */
static struct moment *take_place(const struct moment *m)
{
    for (unsigned i = 0; i < WAITING; i++)
        if (change_state(&all.waiting[i], FREE, TAKEN)) return &all.waiting[i];
    for (unsigned i = 0; i < WAITING; i++) {
        struct moment *other = &all.waiting[i];
        if (other->cause != m->cause || worth_of(other) >= worth_of(m) || !change_state(other, READY, TAKEN)) continue;
        __atomic_add_fetch(&all.left_out, 1, __ATOMIC_RELAXED);
        return other;
    }
    return NULL;
}

bool tfi_moment_ask(enum tfi_moment_cause cause, uint32_t name, uint64_t start, uint64_t end, uint64_t usual)
{
    struct moment m = {.state = TAKEN, .cause = cause, .name = name, .start = start, .end = end, .usual = usual};
    const struct tfi_live *live =
        tfi_live; /* NULL: a signal came to the child of a fork, which has no trace of its own yet */
    if (!live) return false;
    struct moment *place = take_place(&m);
    if (!place) {
        __atomic_add_fetch(&all.left_out, 1, __ATOMIC_RELAXED);
        return false;
    }
    m.begun = __atomic_load_n(&live->serial, __ATOMIC_RELAXED);
    *place = m;
    __atomic_store_n(&place->state, READY, __ATOMIC_RELEASE);
    __atomic_add_fetch(&all.asked, 1, __ATOMIC_RELEASE);
    return true;
}

bool tfi_moments_wait(void)
{
    for (unsigned i = 0; i < WAITING; i++)
        if (__atomic_load_n(&all.waiting[i].state, __ATOMIC_RELAXED) == READY) return true;
    return false;
}

/* ---- choosing ---- */

static uint64_t bytes_of(const struct tfi_parts *parts, unsigned i)
{
    return parts->part[i].end - (i ? parts->part[i - 1].end : parts->start);
}

/* Bytes of the parts that any of these moments keeps. */
static uint64_t kept_bytes(const struct tfi_parts *parts, uint32_t moments)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < parts->count; i++)
        if (parts->part[i].moments & moments) sum += bytes_of(parts, i);
    return sum;
}

static uint32_t moments_of(uint32_t cause)
{
    uint32_t bits = 0;
    for (unsigned i = 0; i < TFI_MOMENTS; i++)
        if (all.kept[i].cause == cause) bits |= 1u << i;
    return bits;
}

static unsigned count_of(uint32_t cause)
{
    unsigned count = 0;
    for (unsigned i = 0; i < TFI_MOMENTS; i++) count += all.kept[i].cause == cause;
    return count;
}

static void drop_moment(const struct tfi_parts *parts, unsigned at)
{
    for (unsigned i = 0; i < parts->count; i++) parts->part[i].moments &= ~(1u << at);
    all.kept[at].cause = 0;
    __atomic_add_fetch(&all.left_out, 1, __ATOMIC_RELAXED);
}

/* Has the moment keep the parts in front of its end: not those whose chunks were all begun after it. */
static void keep_parts(const struct tfi_parts *parts, unsigned at)
{
    struct moment *m = &all.kept[at];
    uint64_t since = m->end > all.ticks ? m->end - all.ticks : 0, sum = 0;
    uint64_t most = all.bytes / 16 * quotas[m->cause].one;
    unsigned i = parts->count;
    for (; i > 0 && parts->part[i - 1].last >= since; i--) {
        struct tfi_part *part = &parts->part[i - 1];
        bool goes = i <= parts->chosen && !part->stays, is_later = part->lowest > m->begun;
        uint64_t bytes = is_later ? 0 : bytes_of(parts, i - 1);
        if (goes || (sum && sum + bytes > most)) break;
        sum += bytes;
        if (!is_later) part->moments |= 1u << at;
    }
    m->from = i ? parts->part[i - 1].last : 0;
    if (m->from > m->end) m->flags |= TFI_KEPT_CUT; /* the choice came too late */
}

/* Returns the moment of that cause that is worth least, other than `except`; NONE: there is none. */
static unsigned least_of(uint32_t cause, unsigned except)
{
    unsigned least = NONE;
    for (unsigned i = 0; i < TFI_MOMENTS; i++) {
        if (i == except || all.kept[i].cause != cause) continue;
        if (least == NONE || worth_of(&all.kept[i]) < worth_of(&all.kept[least])) least = i;
    }
    return least;
}

/* Finds a place for the moment, of one that gives way to it if need be; NONE: it gives way itself. */
static unsigned place_for(const struct tfi_parts *parts, const struct moment *m)
{
    const struct quota *quota = &quotas[m->cause];
    unsigned least = least_of(m->cause, NONE);
    if (count_of(m->cause) >= quota->places) {
        if (worth_of(&all.kept[least]) >= worth_of(m)) return NONE;
        drop_moment(parts, least);
    }
    for (unsigned i = 0; i < TFI_MOMENTS; i++)
        if (!all.kept[i].cause) return i;
    return NONE;
}

/* Keeps the moment if there are no better ones; true if so. */
static bool keep_moment(const struct tfi_parts *parts, const struct moment *m)
{
    const struct quota *quota = &quotas[m->cause];
    unsigned at = place_for(parts, m);
    if (at == NONE) {
        __atomic_add_fetch(&all.left_out, 1, __ATOMIC_RELAXED);
        return false;
    }
    all.kept[at] = *m;
    keep_parts(parts, at);
    while (kept_bytes(parts, moments_of(m->cause)) > all.bytes / 16 * quota->all) {
        unsigned least = least_of(m->cause, at);
        if (least == NONE) break; /* one alone: its only part is that large */
        if (least != at && worth_of(&all.kept[least]) >= worth_of(m)) least = at;
        drop_moment(parts, least);
        if (least == at) return false;
    }
    return true;
}

bool tfi_moments_take(const struct tfi_parts *parts)
{
    bool any = false;
    for (unsigned i = 0; i < WAITING; i++) {
        struct moment *waiting = &all.waiting[i];
        if (!change_state(waiting, READY, TAKEN)) continue;
        const struct moment m = *waiting;
        __atomic_store_n(&waiting->state, FREE, __ATOMIC_RELEASE);
        any |= keep_moment(parts, &m);
    }
    return any;
}

void tfi_moments_note(const struct tfi_parts *parts, uint64_t serial)
{
    struct tfi_part *part = &parts->part[parts->count - 1];
    for (unsigned i = 0; i < TFI_MOMENTS; i++) {
        struct moment *m = &all.kept[i];
        if (!m->cause || serial > m->begun || part->moments >> i & 1) continue;
        part->moments |= 1u << i;
        if (kept_bytes(parts, moments_of(m->cause)) <= all.bytes / 16 * quotas[m->cause].all) continue;
        part->moments &= ~(1u << i);
        m->flags |= TFI_KEPT_CUT;
    }
}

/* ---- the rows of the trace ---- */

size_t tfi_moments_write(uint8_t *to, uint64_t now, uint32_t *count)
{
    struct tfi_rec_kept *row = (struct tfi_rec_kept *)to;
    uint64_t left_out = __atomic_load_n(&all.left_out, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < TFI_MOMENTS; i++) {
        const struct moment *m = &all.kept[i];
        if (!m->cause) continue;
        *row++ = (struct tfi_rec_kept){.rec = {TFI_KIND_kept, sizeof *row},
                                       .cause = m->cause,
                                       .time = now,
                                       .name = m->name,
                                       .flags = m->flags,
                                       .from = m->from,
                                       .start = m->start,
                                       .end = m->end,
                                       .usual = m->usual};
    }
    if (left_out) *row++ = (struct tfi_rec_kept){.rec = {TFI_KIND_kept, sizeof *row}, .time = now, .usual = left_out};
    *count = (uint32_t)(row - (struct tfi_rec_kept *)to);
    return (size_t)((uint8_t *)row - to);
}
