/* open_stack.c - keeps the stack of a thread's open ranges; the time of an operation hardly depends on its size.
 *
 * Programs leave tens of thousands of ranges open: pushes without pops, or requests that end in the order they began
 * in. A range removed from below the top leaves a hole (id 0). The hole goes when all ranges above it have gone. When
 * there is no room, the holes are closed if they are at least a sixteenth of the places; otherwise the stack grows.
 * Each range has an order, which only grows, so a range is found by binary search. A nested range holds the order of
 * the next one of its domain below it, and a small table of the thread holds the innermost one of each domain. Ranges
 * of domains beyond the table are searched for from the top.
 *
 * Only the thread itself uses its stack. A signal handler may jump out of this code anywhere. So entries of the table
 * are checked, and the search from the top corrects a wrong one.
 */
#include "stage/open_stack.h"

#include "base/sys.h"
#include "record/strings.h"
#include "record/thread.h"
#include "stage/open_names.h"

#define MAX_OPEN 65536u
#define HOLES_PART 16u

static bool is_nested_in(const struct tfi_open *open, uint32_t domain)
{
    return open->domain == domain && open->flags & TFI_RANGE_NESTED;
}

/* The table's place for a domain, NULL if other domains have taken all. */
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

/* The index of the first place whose order is at least `order`. */
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
    t->open = larger; /* the smaller stack stays mapped: all of them together are smaller than this one */
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
    __atomic_signal_fence(__ATOMIC_SEQ_CST); /* the table before nr_open: an order not on the stack is detected */
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
