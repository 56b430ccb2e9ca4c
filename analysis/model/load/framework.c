/* framework.c - loads the collectives that torch itself tells, and matches their calls with the work of the backend.
 *
 * A call of a process group names the group, the elements and the type. The work of a host's backend such as gloo runs
 * later, in a thread of that group. The span of the collective is that of its work: from the moment at which a thread
 * of the backend takes it up to the moment at which it is done. A send or a receive works in the calling thread,
 * until the program has waited for it.
 *
 * Calls and works are matched in four steps. A work inside a call of its own thread belongs to that call. A work whose
 * tensor object is that of an earlier call votes for the group of its thread. The works of a group then take the calls
 * of that group in order; among the next few calls, one with the same tensor object comes first, because a group has
 * several threads. Works of threads without votes take the latest call of any group.
 *
 * A call is recorded at its entry and at its end. One without an end was in flight when the process died or the trace
 * was read: it counts, and its end is unknown.
 *
 * A call around a call of NCCL is one collective with it: NCCL's communicator gets the name of the process group.
 */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "model/execution/execution.h"
#include "model/load/load.h"

enum {
    WINDOW = 8,  /* the oldest waiting calls of a group that a work may take */
    WIDEST = 32, /* and the calls among which they lie */
    DEPTH = 4,   /* calls that may be open in a thread at once */
    LATEST = 64, /* calls that a work without a group looks through */
};

/* ---- records ---- */

static uint64_t elements(uint64_t recorded)
{
    return (int64_t)recorded >= 0 ? recorded : UNKNOWN_COUNT;
}

void load_framework_collectives(struct load *load)
{
    const uint64_t *name = load_column(load, COL_framework_collective_name),
                   *time = load_column(load, COL_framework_collective_time),
                   *duration = load_column(load, COL_framework_collective_duration),
                   *group = load_column(load, COL_framework_collective_group),
                   *description = load_column(load, COL_framework_collective_description),
                   *in = load_column(load, COL_framework_collective_in),
                   *out = load_column(load, COL_framework_collective_out),
                   *tensor = load_column(load, COL_framework_collective_tensor),
                   *tensors = load_column(load, COL_framework_collective_tensors),
                   *type = load_column(load, COL_framework_collective_type),
                   *rank = load_column(load, COL_framework_collective_rank),
                   *ranks = load_column(load, COL_framework_collective_ranks),
                   *peer = load_column(load, COL_framework_collective_peer),
                   *thread = load_column(load, COL_framework_collective_thread),
                   *flags = load_column(load, COL_framework_collective_flags),
                   *members = load_column(load, COL_framework_collective_members),
                   *sequence = load_column(load, COL_framework_collective_sequence);
    for (uint32_t i = 0; i < load_rows(load); i++) {
        struct collectives one = {0};
        struct collective *c = collectives_add(&one);
        const struct string *text = strings_get(&load->trace->strings, name[i]);
        const char *type_name = torch_scalar_name(type[i]);
        bool is_work = flags[i] & TFI_FRAMEWORK_WORK, is_begun = flags[i] & TFI_FRAMEWORK_BEGUN;
        c->name = load_name(load, name[i]);
        c->op = (uint8_t)(text ? collective_op_of(text->text, strlen(text->text)) : COLLECTIVE_OTHER);
        *(is_work ? &c->start : &c->call_start) = (int64_t)time[i]; /* ticks until the end of loading */
        *(is_work ? &c->end : &c->call_end) = is_begun ? UNKNOWN_TIME : load_end(time[i], duration[i]);
        c->communicator = load_name(load, group[i]);
        c->description = load_name(load, description[i]);
        c->members = load_name(load, members[i]);
        c->sequence = (int64_t)sequence[i] >= 0 && c->communicator != NAME_NONE ? (int64_t)sequence[i] : UNKNOWN_NUMBER;
        c->datatype = type_name ? names_add(load->names, type_name, strlen(type_name)) : NAME_NONE;
        c->rank = (int32_t)rank[i] >= 0 ? (int32_t)rank[i] : UNKNOWN_NUMBER;
        c->size = ranks[i] ? (int64_t)(uint32_t)ranks[i] : UNKNOWN_NUMBER;
        c->elements_in = elements(in[i]);
        c->elements_out = elements(out[i]);
        if (type_name) collective_size(c, collective_type_bytes(type_name, false));
        collective_set_peer(c, (int32_t)peer[i]);
        c->thread = (uint32_t)thread[i];
        load->framework =
            mem_grow(load->framework, &load->framework_capacity, load->frameworks + 1, sizeof *load->framework);
        load->framework[load->frameworks++] =
            (struct framework_collective){.own = *c,
                                          .tensor = tensor[i],
                                          .tensors = tensors[i],
                                          .thread = (uint32_t)thread[i],
                                          .is_work = is_work,
                                          .is_begun = is_begun,
                                          .is_description = (flags[i] & TFI_FRAMEWORK_DESCRIPTION) != 0,
                                          .is_whole = text && strstr(text->text, "monitored_barrier")};
        collectives_free(&one);
    }
}

static uint64_t key_of(const struct framework_collective *f)
{
    return hash_numbers(hash_numbers(f->thread, (uint64_t)f->own.call_start), f->own.name);
}

/* Keeps the entry of a call only if the call did not finish. */
static void drop_entries(struct load *load)
{
    struct map finished = {0};
    size_t kept = 0;
    for (size_t i = 0; i < load->frameworks; i++)
        if (!load->framework[i].is_begun) map_put(&finished, key_of(&load->framework[i]), 1);
    for (size_t i = 0; i < load->frameworks; i++) {
        const struct framework_collective *f = &load->framework[i];
        if (!f->is_begun || map_get(&finished, key_of(f)) == MAP_NONE) load->framework[kept++] = *f;
    }
    load->frameworks = kept;
    map_free(&finished);
}

/* ---- calls and works ---- */

struct matching {
    struct framework_collective *call, *work; /* calls by start, works by start */
    size_t calls, works;
    size_t *by_thread; /* calls by thread and start */
    size_t *by_tensor; /* calls by tensor and start */
    size_t *by_group;  /* calls by group and start */
};

static int64_t begin_of(const struct framework_collective *f)
{
    return f->is_work ? f->own.start : f->own.call_start;
}

/* Calls first, then by start. */
static int collectives_by_start(const void *a, const void *b)
{
    const struct framework_collective *x = a, *y = b;
    if (x->is_work != y->is_work) return x->is_work ? 1 : -1;
    return (begin_of(x) > begin_of(y)) - (begin_of(x) < begin_of(y));
}

static int by_key(uint64_t x, uint64_t y, size_t a, size_t b)
{
    return x != y ? (x < y ? -1 : 1) : (a > b) - (a < b);
}

static int by_thread(const void *a, const void *b, void *calls)
{
    const struct framework_collective *call = calls;
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return by_key(call[x].thread, call[y].thread, x, y);
}

static int by_tensor(const void *a, const void *b, void *calls)
{
    const struct framework_collective *call = calls;
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return by_key(call[x].tensor, call[y].tensor, x, y);
}

static int by_group(const void *a, const void *b, void *calls)
{
    const struct framework_collective *call = calls;
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return by_key(call[x].own.communicator, call[y].own.communicator, x, y);
}

static size_t *order_calls(const struct matching *m, int (*order)(const void *, const void *, void *))
{
    size_t *index = mem_zero(m->calls, sizeof *index);
    for (size_t i = 0; i < m->calls; i++) index[i] = i;
    if (m->calls) qsort_r(index, m->calls, sizeof *index, order, m->call);
    return index;
}

/* gloo makes a reduce_scatter of all_reduces on copies of its tensors. */
static bool fits(const struct framework_collective *call, const struct framework_collective *work)
{
    bool copies = call->own.op == COLLECTIVE_REDUCE_SCATTER &&
                  (work->own.op == COLLECTIVE_ALL_REDUCE || work->own.op == COLLECTIVE_REDUCE);
    return (copies || call->own.op == work->own.op) && call->own.call_start <= work->own.start;
}

static bool is_waiting(const struct framework_collective *call)
{
    uint64_t needed = call->own.op == COLLECTIVE_REDUCE_SCATTER ? MAX(call->tensors, 1) : 1;
    return !call->is_nested && !call->is_part && call->works < needed;
}

static void attach(struct framework_collective *call, const struct framework_collective *work)
{
    struct collective *c = &call->own;
    if (!call->works++ || work->own.start < c->start) c->start = work->own.start;
    c->end = MAX(c->end, work->own.end);
}

/* Returns the innermost call of a thread around a moment; NULL if there is none. */
static struct framework_collective *call_around(const struct matching *m, uint32_t thread, int64_t time)
{
    size_t low = 0, high = m->calls;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct framework_collective *at = &m->call[m->by_thread[middle]];
        if (at->thread < thread || (at->thread == thread && at->own.call_start <= time)) low = middle + 1;
        else high = middle;
    }
    for (size_t i = low; i-- && low - i <= DEPTH;) {
        struct framework_collective *at = &m->call[m->by_thread[i]];
        if (at->thread != thread) break;
        if (time <= at->own.call_end && !at->is_part) return at;
    }
    return NULL;
}

/* Returns the innermost other call around a call; NULL if there is none. */
static struct framework_collective *call_outside(const struct matching *m, struct framework_collective *call)
{
    call->is_part = true;
    struct framework_collective *outer = call_around(m, call->thread, call->own.call_start);
    call->is_part = false;
    return outer && call->own.call_end <= outer->own.call_end ? outer : NULL;
}

static bool is_same(const struct framework_collective *a, const struct framework_collective *b)
{
    return a->own.op == b->own.op && a->own.communicator == b->own.communicator;
}

/* With a mode of Python's dispatcher, torch runs the operator of a call once more inside it. The inner one counts. A
 * call without an end has another inside it, or its end is lost, if the thread then calls the same. */
static void drop_repeats(struct matching *m)
{
    for (size_t i = 0; i < m->calls; i++) {
        struct framework_collective *inner = &m->call[i];
        struct framework_collective *outer = inner->is_description ? NULL : call_outside(m, inner);
        if (outer && !outer->is_description) outer->is_part = is_same(outer, inner);
    }
    for (size_t i = 1; i < m->calls; i++) {
        struct framework_collective *call = &m->call[m->by_thread[i - 1]], *next = &m->call[m->by_thread[i]];
        call->is_part |= call->is_begun && call->thread == next->thread && is_same(call, next);
    }
}

/* Adds libtorch's descriptions to the calls around them. */
static void match_descriptions(struct matching *m)
{
    for (size_t i = 0; i < m->calls; i++) {
        struct framework_collective *inner = &m->call[i];
        struct framework_collective *outer = inner->is_description ? call_outside(m, inner) : NULL;
        if (!outer) continue;
        inner->is_part = true;
        if (outer->own.members != NAME_NONE) continue;
        outer->own.members = inner->own.members;
        outer->own.sequence = inner->own.sequence;
    }
}

/* A monitored barrier consists of sends and receives in its own thread, and lasts as long as its call. */
static void match_nested(struct matching *m)
{
    for (size_t i = 0; i < m->calls; i++) {
        const struct framework_collective *call = &m->call[i];
        struct framework_collective itself = *call;
        itself.own.start = call->own.call_start;
        itself.own.end = call->own.call_end;
        if (call->is_whole) attach(&m->call[i], &itself);
    }
    for (size_t i = 0; i < m->works; i++) {
        struct framework_collective *call = call_around(m, m->work[i].thread, m->work[i].own.start);
        m->work[i].is_nested = call != NULL;
        if (call && !call->is_whole) attach(call, &m->work[i]);
    }
}

/* ---- the groups of threads ---- */

/* Returns the latest call on the work's tensor before it; NULL if there is none. */
static const struct framework_collective *call_on_tensor(const struct matching *m,
                                                         const struct framework_collective *work)
{
    size_t low = 0, high = m->calls;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct framework_collective *at = &m->call[m->by_tensor[middle]];
        if (at->tensor < work->tensor || (at->tensor == work->tensor && at->own.call_start <= work->own.start))
            low = middle + 1;
        else high = middle;
    }
    const struct framework_collective *call = low ? &m->call[m->by_tensor[low - 1]] : NULL;
    return call && work->tensor && call->tensor == work->tensor && fits(call, work) ? call : NULL;
}

struct vote {
    uint32_t thread, group;
};

static int by_vote(const void *a, const void *b)
{
    const struct vote *x = a, *y = b;
    return by_key(x->thread, y->thread, x->group, y->group);
}

/* Gives each work the group that most works of its thread vote for. */
static void find_groups(struct matching *m)
{
    struct vote *vote = mem_zero(m->works, sizeof *vote);
    size_t votes = 0, most = 0;
    struct map group_of = {0};
    for (size_t i = 0; i < m->works; i++) {
        const struct framework_collective *call = m->work[i].is_nested ? NULL : call_on_tensor(m, &m->work[i]);
        if (call) vote[votes++] = (struct vote){m->work[i].thread, call->own.communicator};
    }
    if (votes) qsort(vote, votes, sizeof *vote, by_vote);
    for (size_t first = 0, end; first < votes; first = end) {
        for (end = first; end < votes && by_vote(&vote[first], &vote[end]) == 0;) end++;
        if (!first || vote[first].thread != vote[first - 1].thread) most = 0;
        if (end - first > most) map_put(&group_of, vote[first].thread, vote[first].group);
        most = MAX(most, end - first);
    }
    for (size_t i = 0; i < m->works; i++) {
        uint32_t group = map_get(&group_of, m->work[i].thread);
        m->work[i].group = group == MAP_NONE ? NAME_NONE : group;
    }
    map_free(&group_of);
    free(vote);
}

/* ---- works in order ---- */

/* The calls of a group that are not done, from the oldest one on, as places in by_group. */
struct queue {
    size_t from, end;
};

static bool has_begun(const struct matching *m, size_t place, const struct framework_collective *work)
{
    return m->call[m->by_group[place]].own.call_start <= work->own.start;
}

/* True if each of so many calls on the work's tensor has a work: this one, and others before a call from place `from` on has
 * that tensor again. */
static bool have_works(const struct matching *m, const struct framework_collective *work, size_t calls, size_t from,
                       size_t end)
{
    int64_t until = INT64_MAX;
    size_t works = 0, left = (size_t)(m->work + m->works - work);
    for (size_t i = from; i < end && i - from < WIDEST && until == INT64_MAX; i++) {
        const struct framework_collective *call = &m->call[m->by_group[i]];
        if (call->tensor == work->tensor) until = call->own.call_start;
    }
    for (size_t i = 0; i < left && i < WIDEST && work[i].own.start < until; i++)
        works += work[i].tensor == work->tensor && work[i].own.op == work->own.op && !work[i].is_nested;
    return works >= calls;
}

/* A work takes the oldest call on its tensor if all of these have works. Else the work of an older call is lost, and it takes
 * the latest one. Without such a call it takes the oldest one whose tensor is copied or unknown,
 * else the oldest one that fits; SIZE_MAX if none fits. It looks at calls from place `from` on. `more` tells whether
 * calls behind the window had begun too. */
static size_t choose(const struct matching *m, size_t from, size_t end, const struct framework_collective *work,
                     bool *more)
{
    size_t first = SIZE_MAX, same = SIZE_MAX, open = SIZE_MAX, any = SIZE_MAX, seen = 0, sames = 0, i = from;
    for (; i < end && seen < WINDOW && i - from < WIDEST && has_begun(m, i, work); i++) {
        const struct framework_collective *call = &m->call[m->by_group[i]];
        if (!is_waiting(call)) continue;
        seen++;
        if (!fits(call, work)) continue;
        bool is_open = !call->tensor || !work->tensor || call->own.op != work->own.op;
        if (work->tensor && call->tensor == work->tensor) {
            first = MIN(first, i);
            same = i;
            sames++;
        }
        if (is_open) open = MIN(open, i);
        any = MIN(any, i);
    }
    *more = i < end && has_begun(m, i, work);
    if (sames > 1 && have_works(m, work, sames, i, end)) return first;
    return same != SIZE_MAX ? same : open != SIZE_MAX ? open : any;
}

/* Finds the calls of each group in by_group. */
static struct queue *find_queues(const struct matching *m, struct map *queue_of)
{
    struct queue *queue = mem_zero(m->calls, sizeof *queue);
    uint32_t queues = 0;
    for (size_t i = 0; i < m->calls; i++) {
        uint32_t group = m->call[m->by_group[i]].own.communicator, at = map_get(queue_of, group);
        if (at == MAP_NONE) {
            map_put(queue_of, group, at = queues++);
            queue[at].from = i;
        }
        queue[at].end = i + 1;
    }
    return queue;
}

/* The calls that a thread takes are in order, so it takes none before its last one. */
static void match_in_order(struct matching *m)
{
    struct map queue_of = {0}, last_of = {0}; /* the place of the last call, by thread */
    struct queue *queue = find_queues(m, &queue_of);
    for (size_t i = 0; i < m->works; i++) {
        const struct framework_collective *work = &m->work[i];
        uint32_t at = work->is_nested || work->group == NAME_NONE ? MAP_NONE : map_get(&queue_of, work->group);
        if (at == MAP_NONE) continue;
        struct queue *q = &queue[at];
        uint32_t last = map_get(&last_of, work->thread);
        bool more = true;
        size_t place = SIZE_MAX;
        while (more && place == SIZE_MAX) {
            size_t from = last == MAP_NONE ? q->from : MAX(q->from, last);
            place = choose(m, from, q->end, work, &more);
            if (place == SIZE_MAX && more) q->from = from + 1; /* the work of the oldest call is lost */
        }
        if (place != SIZE_MAX) {
            attach(&m->call[m->by_group[place]], work);
            map_put(&last_of, work->thread, (uint32_t)place);
        }
        while (q->from < q->end && !is_waiting(&m->call[m->by_group[q->from]])) q->from++;
    }
    map_free(&queue_of);
    map_free(&last_of);
    free(queue);
}

/* Matches the works of threads without a group, such as those of a group that only has barriers. */
static void match_rest(struct matching *m)
{
    for (size_t i = 0, next = 0; i < m->works; i++) {
        const struct framework_collective *work = &m->work[i];
        while (next < m->calls && m->call[next].own.call_start <= work->own.start) next++;
        if (work->is_nested || work->group != NAME_NONE) continue;
        for (size_t k = next; k-- && next - k <= LATEST;) {
            if (!is_waiting(&m->call[k]) || !fits(&m->call[k], work)) continue;
            attach(&m->call[k], work);
            break;
        }
    }
}

/* ---- NCCL ---- */

/* Takes from a call what NCCL does not know. A message gets its ranks too: NCCL has a communicator for each pair. */
static void take_group(struct collective *c, const struct collective *call, bool is_own)
{
    bool is_message = c->op == COLLECTIVE_SEND || c->op == COLLECTIVE_RECV;
    bool is_same = is_own && call->op == c->op;
    if (is_message && !is_same) return;
    c->communicator = call->communicator;
    c->description = call->description;
    c->members = call->members;
    if (!is_message) return;
    c->rank = call->rank;
    c->source = call->source;
    c->peer = call->peer;
}

/* Gives the collectives of NCCL the names of their process groups. A communicator has one group, so collectives whose
 * call was not recorded get the name too. */
static void name_communicators(struct matching *m, struct process *process)
{
    struct collectives *nccl = &process->collectives;
    struct map call_of = {0}; /* by communicator */
    struct framework_collective **own = mem_zero(nccl->count, sizeof *own);
    for (size_t i = 0; i < nccl->count; i++) {
        const struct collective *c = &nccl->collective[i];
        struct framework_collective *call = own[i] = call_around(m, c->thread, c->call_start);
        if (!call) continue;
        call->is_nested = true;
        bool is_message = c->op == COLLECTIVE_SEND || c->op == COLLECTIVE_RECV;
        if (!is_message && call->own.communicator != NAME_NONE && c->communicator != NAME_NONE)
            map_put(&call_of, c->communicator, (uint32_t)(call - m->call));
    }
    for (size_t i = 0; i < nccl->count; i++) {
        struct collective *c = &nccl->collective[i];
        uint32_t known = c->communicator == NAME_NONE ? MAP_NONE : map_get(&call_of, c->communicator);
        if (own[i] && own[i]->own.communicator != NAME_NONE) take_group(c, &own[i]->own, true);
        else if (known != MAP_NONE) take_group(c, &m->call[known].own, false);
    }
    map_free(&call_of);
    free(own);
}

/* ---- the end of loading ---- */

/* Adds the calls that are collectives of their own. A call without work is not added in a trace with NCCL's calls: NCCL
 * executes it elsewhere, for instance in the replay of a graph. */
static void add_calls(struct process *process, const struct matching *m)
{
    bool beside_nccl = process->collectives.count > 0;
    for (size_t i = 0; i < m->calls; i++) {
        const struct framework_collective *call = &m->call[i];
        if (call->is_nested || call->is_part || (beside_nccl && !call->works)) continue;
        *collectives_add(&process->collectives) = call->own;
    }
}

static void convert(struct load *load)
{
    for (size_t i = 0; i < load->frameworks; i++) {
        struct collective *c = &load->framework[i].own;
        int64_t *times[] = {&c->call_start, &c->call_end, &c->start, &c->end};
        for (size_t k = 0; k < ARRAY_SIZE(times); k++)
            if (*times[k] != UNKNOWN_TIME) *times[k] = clock_ns(&load->process->clock, (uint64_t)*times[k]);
    }
}

void load_framework_collectives_end(struct load *load)
{
    struct matching m = {.call = load->framework};
    if (!load->frameworks) return;
    drop_entries(load);
    convert(load);
    qsort(load->framework, load->frameworks, sizeof *load->framework, collectives_by_start);
    while (m.calls < load->frameworks && !load->framework[m.calls].is_work) m.calls++;
    m.work = load->framework + m.calls;
    m.works = load->frameworks - m.calls;
    m.by_thread = order_calls(&m, by_thread);
    m.by_tensor = order_calls(&m, by_tensor);
    m.by_group = order_calls(&m, by_group);
    drop_repeats(&m);
    match_descriptions(&m);
    name_communicators(&m, load->process);
    match_nested(&m);
    find_groups(&m);
    match_in_order(&m);
    match_rest(&m);
    add_calls(load->process, &m);
    collectives_finish(&load->process->collectives);
    free(m.by_thread);
    free(m.by_tensor);
    free(m.by_group);
}
