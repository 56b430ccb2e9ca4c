/* group.c - finds what is unmatched in one group of ranks.
 *
 * The place of a collective in its group is its epoch, its sequence number, and its number among those with the same
 * sequence number. Collectives in CUDA graphs are left out: a replay is no call. A message between two ranks is matched
 * with the one of the same place among those of the two.
 */
#include "ask/hang/group.h"

#include <stdlib.h>
#include <string.h>

enum { STEPS_AHEAD = 8 }; /* later collectives among which an operation in the wrong order is searched for */

struct ranks {
    struct hang *hang;
    const struct comm_part *name; /* any part of it */
    const struct comm_part *part; /* of the collectives of the group, without messages and replays, in order */
    size_t parts;
    struct member {
        struct hang_rank found;
        const struct comm_part *last;
        size_t place; /* of its process; SIZE_MAX: it has none */
        bool is_whole;
    } * member;
    size_t members, capacity;
    struct map of_rank; /* index in `member` */
    int64_t size;
    bool is_counted;   /* its numbers are places in the order of time */
    bool is_uncertain; /* and some member's are not comparable */
};

/* ---- places in the order ---- */

static int by_position(const struct comm_part *a, const struct comm_part *b)
{
    if (a->epoch != b->epoch) return a->epoch < b->epoch ? -1 : 1;
    if (a->sequence != b->sequence) return a->sequence < b->sequence ? -1 : 1;
    return by_number(a->again, b->again);
}

/* Returns the end of the parts at the position of part `first`. */
static size_t position_end(const struct ranks *g, size_t first)
{
    size_t end = first + 1;
    while (end < g->parts && by_position(&g->part[first], &g->part[end]) == 0) end++;
    return end;
}

static bool is_done(const struct comm_part *part)
{
    return part->end != UNKNOWN_TIME;
}

/* ---- members ---- */

static struct member *add_member(struct ranks *g, int64_t rank)
{
    uint32_t at = map_get(&g->of_rank, (uint64_t)rank);
    if (at == MAP_NONE) {
        size_t place = hang_place(g->hang, rank);
        g->member = mem_grow(g->member, &g->capacity, g->members + 1, sizeof *g->member);
        g->member[g->members] =
            (struct member){.found = {.rank = rank, .number = UNKNOWN_NUMBER, .since = UNKNOWN_TIME},
                            .place = place,
                            .is_whole = place != SIZE_MAX && g->hang->taken[place]->is_whole && g->hang->job.runs < 2};
        map_put(&g->of_rank, (uint64_t)rank, at = (uint32_t)g->members++);
    }
    return &g->member[at];
}

/* Adds the ranks of a text such as "[0, 2]". */
static void add_listed(struct ranks *g, const char *text)
{
    enum { MOST_LISTED = 1 << 22 }; /* of all groups; those of a real job, such as 1,000 of 1,000 ranks, have fewer */
    if (g->hang->listed > MOST_LISTED) {
        g->hang->unlisted++;
        return;
    }
    for (const char *at = text; *at;) {
        size_t digits = strspn(at, "0123456789");
        if (digits && digits < 10) add_member(g, strtoll(at, NULL, 10));
        g->hang->listed += digits > 0;
        at += digits ? digits : 1;
    }
}

static void add_members(struct ranks *g, const struct hang_places *places)
{
    const struct selection *chosen = g->hang->chosen;
    uint64_t key = hang_group_key(g->name->group, g->name->members);
    size_t low = 0, high = places->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (places->place[middle].key < key) low = middle + 1;
        else high = middle;
    }
    for (size_t i = low; i < places->count && places->place[i].key == key; i++) {
        const struct hang_place *at = &places->place[i];
        int64_t rank = chosen->process[at->place]->rank;
        if (rank < 0) continue;
        struct member *m = add_member(g, rank);
        if (at->number != UNKNOWN_NUMBER) m->found.number = at->number;
        g->size = MAX(g->size, at->size);
    }
    for (size_t i = 0; i < g->parts; i++) g->size = MAX(g->size, g->part[i].size);
    if (g->name->members != NAME_NONE) add_listed(g, names_get(g->hang->job.summary.names, g->name->members)->text);
    if ((int64_t)g->members >= g->size) return;
    for (size_t i = 0; i < chosen->processes; i++) /* a group as large as the world has all ranks */
        if (chosen->process[i]->rank >= 0 && chosen->process[i]->world == g->size)
            add_member(g, chosen->process[i]->rank);
}

static void take_last(struct ranks *g)
{
    for (size_t i = 0; i < g->parts; i++) {
        const struct comm_part *part = &g->part[i];
        if (part->rank < 0) continue;
        struct member *m = add_member(g, part->rank);
        if (!m->last || by_position(m->last, part) <= 0) m->last = part;
        g->is_counted |= part->is_counted;
    }
}

/* ---- what is unmatched ---- */

/* Returns the first part that the slowest member lacks, NULL if all have come equally far. `whole`: only members whose
 * traces are whole count. */
static const struct comm_part *first_lacking(const struct ranks *g, bool whole)
{
    const struct comm_part *least = NULL;
    bool none = false, any = false;
    for (size_t i = 0; i < g->members; i++) {
        const struct member *m = &g->member[i];
        if (whole ? !m->is_whole : !m->last) continue;
        none |= !m->last;
        if (m->last && (!any || by_position(m->last, least) < 0)) least = m->last;
        any |= m->last != NULL;
    }
    if (none) return g->part;
    for (size_t i = 0; i < g->parts && any; i++)
        if (by_position(&g->part[i], least) > 0) return &g->part[i];
    return NULL;
}

/* Returns the number of elements in which all ranks of a collective have to agree; UNKNOWN_COUNT: there is none. */
static uint64_t common_count(const struct comm_part *part)
{
    switch (part->op) {
    case COLLECTIVE_ALL_REDUCE:
    case COLLECTIVE_BROADCAST:
    case COLLECTIVE_REDUCE: return part->elements_in;
    default: return UNKNOWN_COUNT;
    }
}

static enum hang_differs compare(const struct comm_part *a, const struct comm_part *b)
{
    uint64_t x = common_count(a), y = common_count(b);
    if (a->op != b->op) return DIFFERS_OPERATION;
    if (a->root != b->root && a->root != UNKNOWN_NUMBER && b->root != UNKNOWN_NUMBER) return DIFFERS_ROOT;
    if (x != y && x != UNKNOWN_COUNT && y != UNKNOWN_COUNT) return DIFFERS_COUNT;
    bool typed = common_count(a) != UNKNOWN_COUNT && a->datatype != NAME_NONE && b->datatype != NAME_NONE;
    return typed && a->datatype != b->datatype ? DIFFERS_DATATYPE : DIFFERS_NOT;
}

/* Returns the first position at which the ranks called different things and which some of them have not left. */
static const struct comm_part *first_differing(const struct ranks *g)
{
    for (size_t first = 0, end; first < g->parts; first = end) {
        bool differs = false, done = true;
        end = position_end(g, first);
        for (size_t i = first; i < end; i++) {
            differs |= compare(&g->part[first], &g->part[i]) != DIFFERS_NOT;
            done &= is_done(&g->part[i]);
        }
        if (differs && !done) return &g->part[first];
    }
    return NULL;
}

/* ---- the ranks of an unmatched collective ---- */

static struct hang_unmatched *add_unmatched(struct ranks *g, const struct comm_part *part)
{
    struct hang *hang = g->hang;
    hang->unmatched = mem_grow(hang->unmatched, &hang->capacity, hang->count + 1, sizeof *hang->unmatched);
    struct hang_unmatched *u = &hang->unmatched[hang->count++];
    *u = (struct hang_unmatched){.part = part, .size = g->size, .since = UNKNOWN_TIME, .is_uncertain = g->is_uncertain};
    return u;
}

static void take_arrivals(struct ranks *g, struct hang_unmatched *u, size_t first, size_t end)
{
    for (size_t i = 0; i < g->members; i++) {
        g->member[i].found.part = NULL;
        g->member[i].found.differs = DIFFERS_NOT;
        g->member[i].found.since = UNKNOWN_TIME;
    }
    for (size_t i = first; i < end; i++) {
        const struct comm_part *part = &g->part[i];
        if (part->rank < 0) continue;
        struct member *m = add_member(g, part->rank);
        m->found.part = part;
        if (m->place != SIZE_MAX) m->found.since = hang_moment(g->hang, m->place, part->call_start);
        bool earlier = u->since == UNKNOWN_TIME || m->found.since < u->since;
        if (m->found.since != UNKNOWN_TIME && earlier) u->since = m->found.since;
    }
    u->waited = u->since == UNKNOWN_TIME || g->hang->end == UNKNOWN_TIME ? 0 : MAX(add_ns(g->hang->end, -u->since), 0);
}

/* Returns the role of a rank in a collective that it has not called. */
static enum hang_role role_of_absent(const struct ranks *g, const struct member *m, const struct hang_unmatched *u,
                                     bool contradicted)
{
    if (m->place == SIZE_MAX) return HANG_ABSENT;
    const struct process *p = g->hang->chosen->process[m->place];
    bool is_behind = !m->last || by_position(m->last, u->part) < 0;
    if (!m->is_whole || g->is_uncertain || contradicted || !is_behind) return HANG_PARTIAL;
    bool runs = p->life == LIFE_RUNNING;
    if (runs && !p->is_life_known) return HANG_PARTIAL;
    if (runs && u->since != UNKNOWN_TIME && hang_moment(g->hang, m->place, MAX(p->read_at, p->last)) < u->since)
        return HANG_EARLY;
    return HANG_MISSING;
}

/* True if a process of the group is known to run, so that one that is gone did not end together with all others. */
static bool is_running(const struct ranks *g)
{
    for (size_t i = 0; i < g->members; i++) {
        const struct process *p = g->member[i].place == SIZE_MAX ? NULL : g->hang->chosen->process[g->member[i].place];
        if (p && p->life == LIFE_RUNNING && p->is_life_known) return true;
    }
    return false;
}

static bool is_gone(const struct ranks *g, const struct member *m)
{
    const struct process *p = m->place == SIZE_MAX ? NULL : g->hang->chosen->process[m->place];
    return p && p->life != LIFE_RUNNING && p->is_life_known && g->hang->job.runs < 2;
}

static void take_roles(struct ranks *g, struct hang_unmatched *u)
{
    bool running = is_running(g);
    bool went_on = false; /* a collective also ends, with an error, if another rank leaves */
    for (size_t i = 0; i < g->members; i++) {
        const struct member *m = &g->member[i];
        went_on |= m->found.part && is_done(m->found.part) && by_position(m->last, m->found.part) > 0;
    }
    for (size_t i = 0; i < g->members; i++) {
        struct hang_rank *r = &g->member[i].found;
        bool gone = r->part && running && is_gone(g, &g->member[i]);
        if (r->part) r->role = is_done(r->part) ? HANG_LEFT : gone ? HANG_GONE : HANG_WAITS;
        else r->role = role_of_absent(g, &g->member[i], u, went_on && collective_kinds[u->part->op].meets);
    }
}

static int by_rank(const void *a, const void *b)
{
    const struct hang_rank *x = a, *y = b;
    int order = by_number(x->rank, y->rank);
    return order ? order : by_number(x->number, y->number);
}

static void keep_ranks(const struct ranks *g, struct hang_unmatched *u)
{
    u->rank = mem_zero(g->members, sizeof *u->rank);
    u->ranks = g->members;
    for (size_t i = 0; i < g->members; i++) u->rank[i] = g->member[i].found;
    qsort(u->rank, u->ranks, sizeof *u->rank, by_rank);
}

/* ---- different operations ---- */

/* Returns the part with which most parts at a position agree, NULL if no more than half do. A part that two of the votes
 * cannot cancel is found in one pass. */
static const struct comm_part *majority(const struct ranks *g, size_t first, size_t end)
{
    const struct comm_part *candidate = NULL;
    size_t votes = 0;
    for (size_t i = first; i < end; i++) {
        if (!votes) candidate = &g->part[i];
        votes = compare(candidate, &g->part[i]) == DIFFERS_NOT ? votes + 1 : votes - 1;
    }
    votes = 0;
    for (size_t i = first; i < end; i++) votes += compare(candidate, &g->part[i]) == DIFFERS_NOT;
    return 2 * votes > end - first ? candidate : NULL;
}

/* True if a rank calls, among the next positions, what `like` is. */
static bool comes_later(const struct ranks *g, size_t from, int64_t rank, bool same_rank, const struct comm_part *like)
{
    for (size_t i = from, steps = 0, end; i < g->parts && steps < STEPS_AHEAD; i = end, steps++) {
        end = position_end(g, i);
        for (size_t k = i; k < end; k++)
            if ((g->part[k].rank == rank) == same_rank && compare(&g->part[k], like) == DIFFERS_NOT) return true;
    }
    return false;
}

static void take_differences(struct ranks *g, struct hang_unmatched *u, size_t first, size_t end)
{
    const struct comm_part *most = majority(g, first, end), *compared = most ? most : &g->part[first];
    u->has_majority = most != NULL;
    u->part = compared;
    for (size_t i = first; i < end; i++) {
        struct hang_rank *r = &add_member(g, g->part[i].rank)->found;
        r->differs = compare(compared, &g->part[i]);
        u->differs |= r->differs != DIFFERS_NOT;
        bool reordered = r->differs == DIFFERS_OPERATION &&
                         (comes_later(g, end, r->rank, true, compared) || comes_later(g, end, r->rank, false, r->part));
        if (reordered) r->differs = DIFFERS_ORDER;
    }
}

/* ---- one group ---- */

/* Adds the collective at the position of `part`. */
static void add_collective(struct ranks *g, const struct comm_part *part)
{
    size_t first = (size_t)(part - g->part), end = position_end(g, first);
    struct hang_unmatched *u = add_unmatched(g, part);
    take_arrivals(g, u, first, end);
    take_differences(g, u, first, end);
    take_roles(g, u);
    keep_ranks(g, u);
}

static bool is_open(const struct ranks *g, const struct comm_part *part)
{
    return map_get(&g->hang->open, hang_call_key(part->rank, part->call_start)) != MAP_NONE;
}

/* All ranks came to the last collective, but it did not end. It is reported if calls of it have not returned, or if the
 * ends of the collective before it are known. */
static void add_endless(struct ranks *g)
{
    enum { LONG = 2000000000 }; /* nanoseconds after which the end of a collective would have been recorded */
    size_t end = g->parts, first = end;
    bool ends_are_known = false;
    int64_t latest = UNKNOWN_TIME;
    while (first && by_position(&g->part[first - 1], &g->part[g->parts - 1]) == 0) first--;
    for (size_t i = first; i < end; i++) {
        const struct comm_part *part = &g->part[i];
        size_t place = hang_place(g->hang, part->rank);
        if (is_done(part)) return;
        if (place != SIZE_MAX) latest = MAX(latest, hang_moment(g->hang, place, part->call_start));
        ends_are_known |= is_open(g, part);
    }
    ends_are_known |= first && is_done(&g->part[first - 1]);
    if (g->size != (int64_t)(end - first)) return;
    bool lasts = latest != UNKNOWN_TIME && add_ns(g->hang->end, -latest) >= LONG, gone = false;
    struct hang_unmatched *u = add_unmatched(g, &g->part[first]);
    take_arrivals(g, u, first, end);
    take_roles(g, u);
    u->all_came = true;
    keep_ranks(g, u);
    for (size_t i = 0; i < u->ranks; i++) gone |= u->rank[i].role == HANG_GONE;
    if ((ends_are_known && lasts) || gone) return;
    free(u->rank);
    g->hang->count--;
}

static void find_in_group(struct ranks *g, const struct hang_places *places)
{
    take_last(g);
    add_members(g, places);
    for (size_t i = 0; i < g->members; i++)
        g->is_uncertain |= g->is_counted && g->member[i].last && !g->member[i].is_whole;
    const struct comm_part *differing = g->is_uncertain ? NULL : first_differing(g);
    const struct comm_part *lacking = first_lacking(g, true);
    if (!lacking) lacking = first_lacking(g, false);
    if (differing && (!lacking || by_position(differing, lacking) <= 0)) add_collective(g, differing);
    else if (lacking) add_collective(g, lacking);
    else if (g->parts) add_endless(g);
}

/* ---- messages ---- */

/* Adds a message of which one side came only, if the thread of that side still waits for it. */
static void add_message(struct ranks *g, const struct comm_part *part)
{
    bool sends = part->op == COLLECTIVE_SEND;
    int64_t number = sends ? part->peer : part->source;
    struct hang_unmatched *u = add_unmatched(g, part);
    struct member *other = NULL;
    u->is_message = true;
    u->size = 2;
    for (size_t i = 0; i < g->members; i++)
        if (g->member[i].found.number == number && g->member[i].found.rank != part->rank) other = &g->member[i];
    int64_t other_rank = other ? other->found.rank : UNKNOWN_NUMBER;
    u->rank = mem_zero(2, sizeof *u->rank);
    size_t place = hang_place(g->hang, part->rank);
    u->since = place == SIZE_MAX ? UNKNOWN_TIME : hang_moment(g->hang, place, part->call_start);
    u->waited = u->since == UNKNOWN_TIME || g->hang->end == UNKNOWN_TIME ? 0 : MAX(add_ns(g->hang->end, -u->since), 0);
    u->rank[u->ranks++] = (struct hang_rank){
        .rank = part->rank, .number = UNKNOWN_NUMBER, .role = HANG_WAITS, .part = part, .since = u->since};
    if (part->alone) return; /* the other side is unknown */
    struct hang_rank *absent = &u->rank[u->ranks++];
    *absent = (struct hang_rank){.rank = other_rank, .number = number, .role = HANG_ABSENT, .since = UNKNOWN_TIME};
    const struct member whole = other ? (struct member){.place = other->place, .is_whole = other->is_whole}
                                      : (struct member){.place = SIZE_MAX};
    absent->role = role_of_absent(g, &whole, u, false);
    qsort(u->rank, u->ranks, sizeof *u->rank, by_rank);
}

/* True if the rank's thread is in the message's call, or has recorded nothing since. */
static bool waits_for(const struct ranks *g, const struct comm_part *part)
{
    size_t place = hang_place(g->hang, part->rank);
    if (place == SIZE_MAX || is_done(part)) return false;
    const struct hang_thread *t = hang_main_thread(g->hang->taken[place]);
    return t && t->entered == part->call_start && (t->left == UNKNOWN_TIME || (t->has_slot && t->open.calls));
}

/* The parts [first, end) are the messages from one rank to another one. */
static void find_in_messages(struct ranks *g, const struct comm_part *part, size_t count)
{
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first + 1; end < count && by_position(&part[first], &part[end]) == 0;) end++;
        if (end - first == 1 && waits_for(g, &part[first])) {
            add_message(g, &part[first]);
            return;
        }
    }
}

/* Returns the parts [first, end) without replays; a copy, which lives as long as the answer, if there are any. */
static const struct comm_part *without_replays(struct hang *hang, size_t first, size_t end, size_t *count)
{
    const struct comm_part *all = &hang->job.summary.part[first];
    *count = 0;
    for (size_t i = 0; i < end - first; i++) *count += all[i].replay == 0;
    if (*count == end - first) return all;
    struct comm_part *copy = mem_zero(*count, sizeof *copy);
    hang->copy = mem_grow(hang->copy, &hang->copy_capacity, hang->copies + 1, sizeof *hang->copy);
    hang->copy[hang->copies++] = copy;
    for (size_t i = 0, k = 0; i < end - first; i++)
        if (all[i].replay == 0) copy[k++] = all[i];
    return copy;
}

static bool is_message(const struct comm_part *part)
{
    return part->source != UNKNOWN_NUMBER || part->peer != UNKNOWN_NUMBER || part->alone;
}

/* True for messages from one rank to another one. */
static bool is_one_way(const struct comm_part *a, const struct comm_part *b)
{
    return a->source == b->source && a->peer == b->peer && a->alone == b->alone;
}

void hang_group(struct hang *hang, const struct hang_places *places, size_t first, size_t end)
{
    const struct comm_part *all = hang->job.summary.part;
    struct ranks g = {.hang = hang, .size = UNKNOWN_NUMBER};
    size_t messages = first;
    while (messages < end && !is_message(&all[messages])) messages++;
    g.name = &all[first];
    g.part = without_replays(hang, first, messages, &g.parts);
    find_in_group(&g, places);
    for (size_t i = messages, next; i < end; i = next) {
        for (next = i + 1; next < end && is_one_way(&all[next], &all[i]);) next++;
        find_in_messages(&g, &all[i], next - i);
    }
    hang->groups++;
    free(g.member);
    map_free(&g.of_rank);
}
