/* threads.c - loads threads, and resolves the low half of pthread_self() that a device library records.
 *
 * A later thread may reuse the pthread_self() of one that ended, so the time decides. The library's clock and ours
 * differ by microseconds, and a thread may call the device before its first record. So a time outside of all
 * lifetimes goes to the thread that began next, or to one that had only just ended.
 */
#include <stdlib.h>

#include "model/load/load.h"

static void lifetimes_begin(struct lifetimes *l, uint32_t pthread, uint32_t serial, uint64_t time)
{
    l->life = mem_grow(l->life, &l->capacity, l->count + 1, sizeof *l->life);
    l->life[l->count++] = (struct lifetime){pthread, serial, time, UINT64_MAX};
}

static void lifetimes_end(struct lifetimes *l, uint32_t serial, uint64_t time)
{
    l->end = mem_grow(l->end, &l->end_capacity, l->ends + 1, sizeof *l->end);
    l->end[l->ends++] = time;
    map_put(&l->end_of, serial, (uint32_t)l->ends - 1);
}

static int by_pthread_and_start(const void *a, const void *b)
{
    const struct lifetime *x = a, *y = b;
    if (x->pthread != y->pthread) return x->pthread < y->pthread ? -1 : 1;
    return (x->start > y->start) - (x->start < y->start);
}

void lifetimes_sort(struct lifetimes *l)
{
    for (size_t i = 0; i < l->count; i++) {
        uint32_t end = map_get(&l->end_of, l->life[i].serial);
        l->life[i].end = end == MAP_NONE ? UINT64_MAX : l->end[end];
    }
    if (l->count) qsort(l->life, l->count, sizeof *l->life, by_pthread_and_start);
}

uint32_t lifetimes_find(const struct lifetimes *l, uint32_t pthread, uint64_t time)
{
    static const uint64_t SLACK = 1000000; /* ticks: less than a millisecond on any machine */
    size_t low = 0, high = l->count;
    while (low < high) { /* the first one that began later */
        size_t middle = low + (high - low) / 2;
        const struct lifetime *life = &l->life[middle];
        if (life->pthread < pthread || (life->pthread == pthread && life->start <= time)) low = middle + 1;
        else high = middle;
    }
    const struct lifetime *before = low && l->life[low - 1].pthread == pthread ? &l->life[low - 1] : NULL;
    const struct lifetime *after = low < l->count && l->life[low].pthread == pthread ? &l->life[low] : NULL;
    if (before && time <= before->end) return before->serial;
    bool just_ended = before && time - before->end < SLACK;
    if (just_ended && !(after && after->start - time < time - before->end)) return before->serial;
    return after ? after->serial : 0;
}

/* ---- records ---- */

void load_threads(struct load *load)
{
    const uint64_t *serial = load_column(load, COL_thread_serial), *tid = load_column(load, COL_thread_tid);
    const uint64_t *name = load_column(load, COL_thread_name), *pthread = load_column(load, COL_thread_pthread);
    const uint64_t *time = load_column(load, COL_thread_time);
    for (uint32_t i = 0; i < load_rows(load); i++) {
        struct thread *thread = process_thread(load->process, (uint32_t)serial[i]);
        thread->tid = (uint32_t)tid[i];
        thread->name = thread->name ? thread->name : load_name(load, name[i]);
        if (pthread[i]) lifetimes_begin(&load->lifetimes, (uint32_t)pthread[i], (uint32_t)serial[i], time[i]);
    }
}

void load_thread_ends(struct load *load)
{
    const uint64_t *serial = load_column(load, COL_thread_end_serial), *time = load_column(load, COL_thread_end_time);
    for (uint32_t i = 0; i < load_rows(load); i++) lifetimes_end(&load->lifetimes, (uint32_t)serial[i], time[i]);
}

/* Keeps thread names by tid: a name from the program is better than comm. Any thread may name another one, even
 * before that one has a record. */
void load_thread_names(struct load *load)
{
    const uint64_t *tid = load_column(load, COL_thread_name_tid), *name = load_column(load, COL_thread_name_name);
    for (uint32_t i = 0; i < load_rows(load); i++)
        map_put(&load->name_of_tid, tid[i], (uint32_t)MIN(name[i], UINT32_MAX - 1));
}

void load_name_threads(struct load *load)
{
    for (size_t t = 0; t < load->process->threads; t++) {
        struct thread *thread = &load->process->thread[t];
        uint32_t string = thread->tid ? map_get(&load->name_of_tid, thread->tid) : MAP_NONE;
        thread->name = string == MAP_NONE ? thread->name : load_name(load, string);
    }
}
