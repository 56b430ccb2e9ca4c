/* watch.c - keeps the lists of watchers of stages; watch.h describes the events. */
#include "stage/watch.h"

struct tfi_watchers tfi_watchers[TFI_WATCHERS + 1];

/* Puts a watcher into the first free place of the list at offset `list` of the table's rows. */
static void add_watcher(size_t list, const struct tfi_watcher *watcher)
{
    for (unsigned i = 0; i < TFI_WATCHERS; i++) {
        const struct tfi_watcher **place = (void *)((char *)&tfi_watchers[i] + list), *found = NULL;
        if (__atomic_compare_exchange_n(place, &found, watcher, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) ||
            found == watcher)
            return;
    }
}

void tfi_watch(const struct tfi_watcher *w)
{
    if (w->restart) add_watcher(offsetof(struct tfi_watchers, restart), w);
    if (w->edge) add_watcher(offsetof(struct tfi_watchers, edge), w);
    if (w->put) add_watcher(offsetof(struct tfi_watchers, put), w);
    if (w->taken) add_watcher(offsetof(struct tfi_watchers, taken), w);
    if (w->emptied) add_watcher(offsetof(struct tfi_watchers, emptied), w);
    if (w->ended_elsewhere) add_watcher(offsetof(struct tfi_watchers, ended_elsewhere), w);
    if (w->counted) add_watcher(offsetof(struct tfi_watchers, counted), w);
    if (w->opened) add_watcher(offsetof(struct tfi_watchers, opened), w);
    if (w->ending) add_watcher(offsetof(struct tfi_watchers, ending), w);
    if (w->ended) add_watcher(offsetof(struct tfi_watchers, ended), w);
    if (w->forgotten) add_watcher(offsetof(struct tfi_watchers, forgotten), w);
    if (w->stack) add_watcher(offsetof(struct tfi_watchers, stack), w);
    if (w->finish) add_watcher(offsetof(struct tfi_watchers, finish), w);
}

TFI_COLD uint32_t tfi_watch_stack(struct tfi_thread *t)
{
    const struct tfi_watcher *w = __atomic_load_n(&tfi_watchers[0].stack, __ATOMIC_ACQUIRE);
    return w ? w->stack(t) : 0;
}
