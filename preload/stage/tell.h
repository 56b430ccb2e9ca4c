/* tell.h - calls the watchers for stage.c: one walk through the table for each event of watch.h. */
#ifndef TFI_TELL_H
#define TFI_TELL_H

#include "stage/watch.h"

static inline void tfi_tell_restart(void)
{
    const struct tfi_watcher *w;
    for (unsigned i = 0; (w = __atomic_load_n(&tfi_watchers[i].restart, __ATOMIC_ACQUIRE)); i++) w->restart();
}

static inline void tfi_tell_edge(void)
{
    const struct tfi_watcher *w;
    for (unsigned i = 0; (w = __atomic_load_n(&tfi_watchers[i].edge, __ATOMIC_ACQUIRE)); i++) w->edge();
}

static inline void tfi_tell_put(struct tfi_thread *t)
{
    const struct tfi_watcher *w;
    for (unsigned i = 0; (w = __atomic_load_n(&tfi_watchers[i].put, __ATOMIC_ACQUIRE)); i++) w->put(t);
}

static inline void tfi_tell_taken(struct tfi_thread *t, const struct tfi_open *open, bool top)
{
    const struct tfi_watcher *w;
    for (unsigned i = 0; (w = __atomic_load_n(&tfi_watchers[i].taken, __ATOMIC_ACQUIRE)); i++) w->taken(t, open, top);
}

static inline void tfi_tell_emptied(struct tfi_thread *t)
{
    const struct tfi_watcher *w;
    for (unsigned i = 0; (w = __atomic_load_n(&tfi_watchers[i].emptied, __ATOMIC_ACQUIRE)); i++) w->emptied(t);
}

static inline void tfi_tell_ended_elsewhere(const struct tfi_thread *owner, const struct tfi_open *open)
{
    const struct tfi_watcher *w;
    for (unsigned i = 0; (w = __atomic_load_n(&tfi_watchers[i].ended_elsewhere, __ATOMIC_ACQUIRE)); i++)
        w->ended_elsewhere(owner, open);
}

static inline void tfi_tell_counted(struct tfi_thread *t, const struct tfi_open *open, int step, bool turned)
{
    const struct tfi_watcher *w;
    for (unsigned i = 0; (w = __atomic_load_n(&tfi_watchers[i].counted, __ATOMIC_ACQUIRE)); i++)
        w->counted(t, open, step, turned);
}

static inline void tfi_tell_opened(struct tfi_thread *t, const struct tfi_open *open)
{
    const struct tfi_watcher *w;
    for (unsigned i = 0; (w = __atomic_load_n(&tfi_watchers[i].opened, __ATOMIC_ACQUIRE)); i++) w->opened(t, open);
}

static inline void tfi_tell_ended(struct tfi_thread *t, const struct tfi_open *open, uint64_t now, struct tfi_timing *s)
{
    const struct tfi_watcher *w;
    for (unsigned i = 0; (w = __atomic_load_n(&tfi_watchers[i].ending, __ATOMIC_ACQUIRE)); i++) w->ending(t, open, now);
    for (unsigned i = 0; (w = __atomic_load_n(&tfi_watchers[i].ended, __ATOMIC_ACQUIRE)); i++)
        w->ended(t, open, now, s);
}

static inline void tfi_tell_forgotten(const struct tfi_open *open)
{
    const struct tfi_watcher *w;
    for (unsigned i = 0; (w = __atomic_load_n(&tfi_watchers[i].forgotten, __ATOMIC_ACQUIRE)); i++) w->forgotten(open);
}

static inline void tfi_tell_finish(struct tfi_device_time *time)
{
    const struct tfi_watcher *w;
    for (unsigned i = 0; (w = __atomic_load_n(&tfi_watchers[i].finish, __ATOMIC_ACQUIRE)); i++) w->finish(time);
}

#endif
