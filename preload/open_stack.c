/* open_stack.c - the stack of a thread's open ranges, in which each step takes the same time however many are open.
 *
 * Programs leave tens of thousands open: pushes without pops, or requests that end in the order they began in. What is
 * taken away from below the top leaves a hole (id 0), which goes when all above it has gone, or when there is no room:
 * then either a sixteenth of the places are holes and are closed, or the stack grows. Ranges have an order that only
 * grows, so one is found by halves. Nested ranges know the next one of their domain below, and a small table of the
 * thread knows the innermost one of each domain; domains beyond the table are searched for from the top.
 *
 * The stack is the thread's own. A signal handler may jump out of here anywhere: what the table says is checked, and
 * where it is wrong the search from the top puts it right.
 */
#include "open_stack.h"

#include "open_names.h"
#include "strings.h"
#include "sys.h"
#include "thread.h"

#define MAX_OPEN 65536u
#define HOLES_PART 16u

static bool is_nested_in(const struct tfi_open *open, uint32_t domain)
{
    return open->domain == domain && open->flags & TFI_RANGE_NESTED;
}

/* The table's place for a domain, NULL if all are taken by others. */
static struct tfi_open_domain *place_of(struct tfi_thread *t, uint32_t domain)
{
    for (uint32_t i = 0; i < TFI_OPEN_DOMAINS; i++) {
        struct tfi_open_domain *place = &t->domains[(domain + i) % TFI_OPEN_DOMAINS];
        if (place->used && place->domain == domain) return place;
        if (place->used) continue;
        *place = (struct tfi_open_domain){.domain = domain, .used = true};
        return place;
    }
    return NULL;
}

/* The first place whose order is at least that one. */
static uint32_t at_least(const struct tfi_thread *t, uint64_t order)
{
    uint32_t low = 0, high = t->nr_open;
    if (high && t->open[high - 1].order <= order) return t->open[high - 1].order == order ? high - 1 : high;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (t->open[middle].order < order) low = middle + 1;
        else high = middle;
    }
    return low;
}

int64_t tfi_open_find(const struct tfi_thread *t, uint64_t order, uint64_t id)
{
    uint32_t index = at_least(t, order);
    return index < t->nr_open && t->open[index].order == order && t->open[index].id == id ? (int64_t)index : -1;
}

int64_t tfi_open_innermost(struct tfi_thread *t, uint32_t domain)
{
    struct tfi_open_domain *place = place_of(t, domain);
    if (place && !place->innermost) return -1;
    uint32_t index = place ? at_least(t, place->innermost) : t->nr_open;
    if (index < t->nr_open && t->open[index].order == place->innermost && is_nested_in(&t->open[index], domain))
        return index;
    for (index = t->nr_open; index-- > 0;)
        if (is_nested_in(&t->open[index], domain)) break;
    bool found = index != UINT32_MAX;
    if (place) place->innermost = found ? t->open[index].order : 0;
    return found ? (int64_t)index : -1;
}

static TFI_COLD void close_holes(struct tfi_thread *t)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < t->nr_open; i++)
        if (t->open[i].id) t->open[kept++] = t->open[i];
    t->nr_open = kept;
    t->nr_holes = 0;
}

static TFI_COLD bool make_room(struct tfi_thread *t)
{
    uint32_t max = t->max_open ? t->max_open * 2 : 64;
    if (t->max_open && t->nr_holes >= t->max_open / HOLES_PART) {
        close_holes(t);
        return true;
    }
    if (max > MAX_OPEN) return false;
    struct tfi_open *larger = tfi_map(max * (sizeof *larger + 2 * sizeof *t->names));
    if (!larger) return false;
    if (t->nr_open) memcpy(larger, t->open, t->nr_open * sizeof *larger);
    t->open = larger; /* the smaller one is left: all of them together are less than this one */
    t->names = (struct tfi_open_name *)(larger + max);
    t->max_open = max;
    tfi_open_names_again(t);
    return true;
}

bool tfi_open_put(struct tfi_thread *t, struct tfi_open *open)
{
    if (t->nr_open == t->max_open && !make_room(t)) return false;
    struct tfi_open_domain *place = open->flags & TFI_RANGE_NESTED ? place_of(t, open->domain) : NULL;
    open->below = place ? place->innermost : 0;
    tfi_open_name_add(t, open);
    t->open[t->nr_open] = *open;
    __atomic_signal_fence(__ATOMIC_SEQ_CST); /* the table first: an order that is not there is found out */
    if (place) place->innermost = open->order;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    t->nr_open++;
    return true;
}

void tfi_open_take(struct tfi_thread *t, uint32_t index)
{
    struct tfi_open *open = &t->open[index];
    struct tfi_open_domain *place = open->flags & TFI_RANGE_NESTED ? place_of(t, open->domain) : NULL;
    if (place && place->innermost == open->order) place->innermost = open->below;
    tfi_open_name_remove(t, open);
    *open = (struct tfi_open){.order = open->order};
    t->nr_holes++;
    while (t->nr_open && !t->open[t->nr_open - 1].id) {
        t->nr_open--;
        t->nr_holes--;
    }
}

void tfi_open_empty(struct tfi_thread *t)
{
    t->nr_open = t->nr_holes = 0;
    memset(t->domains, 0, sizeof t->domains);
    tfi_open_names_again(t);
}
