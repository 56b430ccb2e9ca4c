/* open_names.c - keeps a table of each thread: how many of its open stages have a name.
 *
 * A program that forgets to end its stages, or a deep recursion, has tens of thousands open; searching them at each
 * beginning would take longer and longer. The table has two places for each range the stack has room for. A name
 * stays in it when its last stage ends, because stages come again. When three quarters of the places are taken, names
 * without an open stage are dropped. So at least a quarter of the table is always free.
 * Only the thread itself uses its table, like its stack.
 */
#include "stage/open_names.h"

#include "record/thread.h"
#include "stage/stage.h"

/* The place of a name, or the free place for it. */
static struct tfi_open_name *place_of(const struct tfi_thread *t, uint32_t name)
{
    uint32_t last = 2 * t->max_open - 1, i = (name * 2654435761u >> 8) & last;
    while (t->names[i].name && t->names[i].name != name) i = (i + 1) & last;
    return &t->names[i];
}

static bool has_name(const struct tfi_open *open)
{
    return open->flags & TFI_RANGE_STAGE && open->name;
}

bool tfi_open_already(const struct tfi_thread *t, uint32_t name)
{
    return t->max_open && name && place_of(t, name)->count;
}

static void add_open_name(struct tfi_thread *t, uint32_t name)
{
    struct tfi_open_name *place = place_of(t, name);
    if (!place->name) t->nr_names++;
    place->name = name;
    place->count++;
}

void tfi_open_name_add(struct tfi_thread *t, const struct tfi_open *open)
{
    if (!has_name(open)) return;
    if (TFI_UNLIKELY(t->nr_names >= t->max_open / 2 * 3)) tfi_open_names_again(t);
    add_open_name(t, open->name);
}

void tfi_open_name_remove(struct tfi_thread *t, const struct tfi_open *open)
{
    struct tfi_open_name *place = has_name(open) ? place_of(t, open->name) : NULL;
    if (place && place->count) place->count--;
}

TFI_COLD void tfi_open_names_again(struct tfi_thread *t)
{
    if (!t->max_open) return;
    memset(t->names, 0, 2 * t->max_open * sizeof *t->names);
    t->nr_names = 0;
    for (uint32_t i = 0; i < t->nr_open; i++)
        if (has_name(&t->open[i])) add_open_name(t, t->open[i].name);
}
