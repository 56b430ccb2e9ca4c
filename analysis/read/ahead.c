/* ahead.c - inflates the chunks behind the one that the caller works on.
 *
 * Slots are offered, claimed and taken in file order. The lock guards `offered`, `claimed`, `stops` and each `is_done`.
 * A claimed slot belongs to the thread that inflates it until it is done; all others belong to the caller. The caller
 * inflates too while it waits, so that no thread sleeps while there is work. It alone allocates: if memory lacks, it
 * may jump out of a call (mem_guard), and ahead_close() still ends the thread.
 */
#include "read/ahead.h"

#include <pthread.h>
#include <stdlib.h>

#include "read/trace.h"

enum { SLOTS = 8 };

struct slot {
    size_t piece;
    struct inflater inflater;
    const uint8_t *payload; /* NULL: damaged */
    bool is_done;
};

struct ahead {
    const struct trace *trace;
    struct slot slot[SLOTS]; /* a ring: slot i is at i % SLOTS */
    size_t next;             /* piece to offer next, if it is a deflated chunk */
    size_t held;             /* the caller uses this slot, or has given it back */
    size_t claimed, offered; /* slots so far */
    bool stops, is_used;     /* is_used: the caller uses slot `held` */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t has_work, is_done;
};

static struct slot *slot_at(struct ahead *a, size_t i)
{
    return &a->slot[i % SLOTS];
}

/* Inflates the next slot that nobody has claimed; the caller holds the lock. Returns false if there is none. */
static bool inflate_one(struct ahead *a)
{
    if (a->claimed == a->offered) return false;
    struct slot *slot = slot_at(a, a->claimed++);
    pthread_mutex_unlock(&a->lock);
    slot->payload = inflater_read(&slot->inflater, a->trace->fd, &a->trace->piece[slot->piece]);
    pthread_mutex_lock(&a->lock);
    slot->is_done = true;
    pthread_cond_signal(&a->is_done);
    return true;
}

static void *inflate_ahead(void *argument)
{
    struct ahead *a = argument;
    pthread_mutex_lock(&a->lock);
    while (!a->stops)
        if (!inflate_one(a)) pthread_cond_wait(&a->has_work, &a->lock);
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

/* Offers chunks as long as there is a free slot. */
static void offer(struct ahead *a)
{
    for (; a->offered - a->held < SLOTS && a->next < a->trace->pieces; a->next++) {
        const struct piece *piece = &a->trace->piece[a->next];
        if (piece->state != PIECE_NEW || !is_deflated(piece)) continue;
        struct slot *slot = slot_at(a, a->offered);
        slot->piece = a->next;
        slot->is_done = false;
        inflater_room(&slot->inflater, piece);
        pthread_mutex_lock(&a->lock);
        a->offered++;
        pthread_cond_signal(&a->has_work);
        pthread_mutex_unlock(&a->lock);
    }
}

/* Inflates slots until the one at `held` is done. */
static void wait_for_held(struct ahead *a)
{
    pthread_mutex_lock(&a->lock);
    while (!slot_at(a, a->held)->is_done)
        if (!inflate_one(a)) pthread_cond_wait(&a->is_done, &a->lock);
    pthread_mutex_unlock(&a->lock);
}

const uint8_t *ahead_payload(struct ahead *a, size_t piece)
{
    a->held += a->is_used;
    a->is_used = false;
    for (; a->held < a->offered && slot_at(a, a->held)->piece < piece; a->held++) wait_for_held(a);
    if (a->held == a->offered) a->next = MAX(a->next, piece);
    offer(a);
    wait_for_held(a);
    a->is_used = true;
    return slot_at(a, a->held)->payload;
}

struct ahead *ahead_open(const struct trace *trace)
{
    struct ahead *a = mem_zero(1, sizeof *a);
    a->trace = trace;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->has_work, NULL);
    pthread_cond_init(&a->is_done, NULL);
    if (pthread_create(&a->thread, NULL, inflate_ahead, a) == 0) return a;
    free(a);
    return NULL;
}

void ahead_close(struct ahead *a)
{
    if (!a) return;
    pthread_mutex_lock(&a->lock);
    a->stops = true;
    pthread_cond_signal(&a->has_work);
    pthread_mutex_unlock(&a->lock);
    pthread_join(a->thread, NULL);
    for (size_t i = 0; i < SLOTS; i++) inflater_free(&a->slot[i].inflater);
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->has_work);
    pthread_cond_destroy(&a->is_done);
    free(a);
}
