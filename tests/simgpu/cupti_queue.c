/* cupti_queue.c - a simulated CUPTI: items on their way from the report to the client's buffers.
 *
 * A list holds complete items in the order of the reports. A heap holds device work until its end, because the driver
 * reports a launch at once with times that lie ahead. A graph launch recorded as a whole gathers its nodes until a
 * synchronisation or a flush, since a host function in the graph can let more of them appear. The newest launch waits
 * for a forced flush.
 */
#include <stdlib.h>
#include <string.h>

#include "cupti_sim.h"

static pthread_mutex_t drain = PTHREAD_MUTEX_INITIALIZER, queue = PTHREAD_MUTEX_INITIALIZER;
static struct sim_item *first, **last = &first, *graphs;
static size_t nr_ready;
static struct {
    struct sim_item **v;
    size_t n, room;
} heap;

struct sim_item *sim_item(int type, CUpti_ActivityKind kind, uint64_t thread)
{
    struct sim_item *item = calloc(1, sizeof *item);
    item->type = type;
    item->kind = kind;
    item->thread = thread;
    item->v2 = sim_v2_session();
    return item;
}

void sim_queue(struct sim_item *list)
{
    pthread_mutex_lock(&queue);
    for (*last = list; *last; last = &(*last)->next) nr_ready++;
    pthread_mutex_unlock(&queue);
}

static void heap_push(struct sim_item *item)
{
    if (heap.n == heap.room) heap.v = sim_resize(heap.v, (heap.room = heap.room ? heap.room * 2 : 64) * sizeof *heap.v);
    size_t i = heap.n++;
    for (; i && heap.v[(i - 1) / 2]->work.end > item->work.end; i = (i - 1) / 2) heap.v[i] = heap.v[(i - 1) / 2];
    heap.v[i] = item;
}

static struct sim_item *heap_pop(void)
{
    struct sim_item *top = heap.v[0], *item = heap.v[--heap.n];
    size_t i = 0, child;
    while ((child = 2 * i + 1) < heap.n) {
        if (child + 1 < heap.n && heap.v[child + 1]->work.end < heap.v[child]->work.end) child++;
        if (heap.v[child]->work.end >= item->work.end) break;
        heap.v[i] = heap.v[child];
        i = child;
    }
    if (heap.n) heap.v[i] = item;
    return top;
}

void sim_queue_work(struct sim_item *item)
{
    pthread_mutex_lock(&queue);
    heap_push(item);
    pthread_mutex_unlock(&queue);
}

/* Adds a node to its graph launch if the client wants only the whole launch. */
bool sim_queue_graph(const struct simgpu_activity *node)
{
    pthread_mutex_lock(&queue);
    struct sim_item *g = graphs;
    while (g && (g->work.graph != node->graph || g->work.correlation != node->correlation || g->v2 != sim_v2_session()))
        g = g->next;
    bool is_new = !g;
    if (is_new) {
        g = sim_item(ITEM_GRAPH, CUPTI_ACTIVITY_KIND_GRAPH_TRACE, 0);
        g->work = *node;
        g->next = graphs;
        graphs = g;
    }
    if (node->start < g->work.start) g->work.start = node->start;
    if (node->end > g->work.end) g->work.end = node->end;
    pthread_mutex_unlock(&queue);
    return is_new;
}

size_t sim_queue_length(bool running)
{
    pthread_mutex_lock(&queue);
    size_t n = nr_ready;
    if (running) {
        n = heap.n;
        for (struct sim_item *g = graphs; g; g = g->next) n++;
    }
    pthread_mutex_unlock(&queue);
    return n;
}

static uint64_t device_now(void)
{
    static uint64_t (*now)(void);
    if (!now) *(void **)&now = sim_driver("simgpu_now");
    return now ? now() : sim_monotonic();
}

/* Takes all items that can be written now; running work only if a forced flush cuts it. */
static struct sim_item *take(unsigned how)
{
    uint64_t now = device_now();
    bool cut = (how & DRAIN_FORCED) && sim_nasty(NASTY_running);
    pthread_mutex_lock(&queue);
    while (heap.n && (cut || heap.v[0]->work.end <= now)) {
        struct sim_item *item = heap_pop();
        if (item->work.end > now) item->cut = now;
        *last = item;
        last = &item->next;
    }
    for (struct sim_item **at = &graphs, *g; (how & (DRAIN_SYNCED | DRAIN_FLUSH)) && (g = *at);) {
        bool newest = g == graphs && !(how & (DRAIN_SYNCED | DRAIN_FORCED)); /* may still get nodes */
        if (newest || (g->work.end > now && !cut)) {
            at = &g->next;
            continue;
        }
        if (g->work.end > now) g->cut = now;
        *at = g->next;
        g->next = NULL;
        *last = g;
        last = &g->next;
    }
    struct sim_item *list = first;
    first = NULL;
    last = &first;
    nr_ready = 0;
    pthread_mutex_unlock(&queue);
    return list;
}

static struct sim_item *reversed(struct sim_item *list)
{
    struct sim_item *result = NULL, *next;
    for (; list; list = next) {
        next = list->next;
        list->next = result;
        result = list;
    }
    return result;
}

/* Writes all items that are ready. A call that does not wait leaves them to the current drain, or to the next call. */
void sim_drain(unsigned how)
{
    if (!sim_registered()) return;
    if (how & DRAIN_WAIT) pthread_mutex_lock(&drain);
    else if (pthread_mutex_trylock(&drain) != 0) return;
    struct sim_item *list = take(how), *next;
    if (sim_nasty(NASTY_order)) list = reversed(list);
    for (; list; list = next) {
        next = list->next;
        sim_emit(list);
        free(list);
    }
    if (how & DRAIN_FLUSH) sim_hand_back_all(sim_nasty(NASTY_held) && !(how & DRAIN_FORCED) && sim_queue_length(true));
    sim_deliver((how & DRAIN_FLUSH) != 0 && ((how & DRAIN_FORCED) || !sim_nasty(NASTY_late)));
    pthread_mutex_unlock(&drain);
}

void sim_queue_forget(void)
{
    pthread_mutex_lock(&drain);
    struct sim_item *list = take(DRAIN_WAIT), *next;
    for (; list; list = next) {
        next = list->next;
        free(list);
    }
    pthread_mutex_lock(&queue);
    while (heap.n) free(heap_pop());
    graphs = NULL;
    pthread_mutex_unlock(&queue);
    sim_buffers_forget();
    pthread_mutex_unlock(&drain);
}
