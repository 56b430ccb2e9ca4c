/* exact_peers.c - finds the times in which the host of a process is in a collective, as gloo's are, and computes nothing.
 *
 * The work of such a collective runs in a thread of its backend, and no record says when the program waits for it. The
 * host computes while any of its threads is in an operator that has no other inside and that is not the collective's
 * own. The rest of the collective's time is spent on other ranks and on moving the data.
 */
#include <stdlib.h>

#include "ask/critical/exact_parts.h"
#include "model/communication.h"
#include "model/kineto/kineto_comm.h"

struct host_collective {
    int64_t start, end;
    uint32_t collective; /* index in process->collectives */
};

struct host_collectives {
    struct host_collective *row;
    size_t count, capacity;
};

static int collectives_by_start(const void *a, const void *b)
{
    const struct host_collective *x = a, *y = b;
    return x->start != y->start ? by_number(x->start, y->start) : by_number(x->collective, y->collective);
}

/* Lists the collectives of the host by their start. */
static struct host_collectives collectives_of_host(const struct process *p)
{
    struct host_collectives all = {0};
    for (size_t i = 0; i < p->collectives.count; i++) {
        const struct collective *c = &p->collectives.collective[i];
        if (c->work != NO_WORK || c->start == UNKNOWN_TIME || c->end == UNKNOWN_TIME || c->end <= c->start) continue;
        all.row = mem_grow(all.row, &all.capacity, all.count + 1, sizeof *all.row);
        all.row[all.count++] = (struct host_collective){c->start, c->end, (uint32_t)i};
    }
    if (all.count) qsort(all.row, all.count, sizeof *all.row, collectives_by_start);
    return all;
}

static bool computes(const struct exact *x, const struct critical_event *event)
{
    const struct spans *s = &x->process->spans;
    if (event->source != FROM_SPAN || !event->is_leaf || s->event_class[event->place] != CLASS_OPERATOR) return false;
    const struct name *name = names_get(x->names, s->name[event->place]);
    return !is_communication_operator(name->text, name->length) &&
           !is_backend_work((struct slice){name->text, name->length});
}

static void add_peer(struct critical_peers *peers, int64_t start, int64_t end, uint32_t collective)
{
    if (end <= start) return;
    peers->collective =
        mem_grow(peers->collective, &peers->capacity, peers->times.count + 1, sizeof *peers->collective);
    peers->collective[peers->times.count] = collective;
    intervals_add(&peers->times, start, end);
}

void exact_peers(struct exact *x)
{
    struct host_collectives all = collectives_of_host(x->process);
    struct intervals busy = {0};
    int64_t at = INT64_MIN; /* all before is done */
    for (size_t i = 0; all.count && i < x->path->events.count; i++) {
        const struct critical_event *event = &x->path->events.event[i];
        if (computes(x, event)) intervals_add_merging(&busy, event->start, event->end);
    }
    intervals_merge(&busy);
    for (size_t i = 0, next = 0; i < all.count; i++) {
        const struct host_collective *of = &all.row[i];
        at = MAX(at, of->start);
        while (next < busy.count && busy.interval[next].end <= at) next++;
        for (; next < busy.count && busy.interval[next].start < of->end; next++) {
            add_peer(&x->path->peers, at, busy.interval[next].start, of->collective);
            at = MAX(at, busy.interval[next].end);
            if (at >= of->end) break; /* the next collective may begin in it */
        }
        add_peer(&x->path->peers, at, of->end, of->collective);
        at = MAX(at, of->end);
    }
    intervals_free(&busy);
    free(all.row);
}
