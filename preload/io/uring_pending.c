/* uring_pending.c - keeps io_uring operations from their submission to their completion, in a table of fixed size.
 *
 * The program's number (user_data) joins the two. A program may give one number to several operations at a time. Their
 * results can't be told apart, so they are written without one, and the entry counts their completions.
 * The table is made at the first operation. When it is full, further operations are written without a result.
 */
#include "base/sys.h"
#include "io/uring.h"

enum { ENTRIES = 4096, CHAINS = 1024, NONE = ENTRIES };

struct entry {
    uint64_t user_data;
    uint32_t ring, next, open; /* open: completions that are still to come; 0: free */
    bool recorded;
    struct tfi_uring_op op;
};

static struct entry *entries;
static uint32_t chains[CHAINS]; /* index of the first entry */
static uint32_t free_list;

static uint32_t *chain_of(uint32_t ring, uint64_t user_data)
{
    return &chains[(user_data ^ ring) * 0x9e3779b97f4a7c15u >> 54];
}

void tfi_uring_reset(void)
{
    for (unsigned i = 0; i < CHAINS; i++) chains[i] = NONE;
    for (uint32_t i = 0; entries && i < ENTRIES; i++) {
        entries[i].open = 0;
        entries[i].next = i + 1;
    }
    free_list = 0;
}

static bool prepare(void)
{
    if (entries) return true;
    entries = tfi_map(ENTRIES * sizeof *entries);
    tfi_uring_reset();
    return entries != NULL;
}

/* Returns the link to an entry: its chain's head or the `next` of the entry before; the link is NONE if there is none. */
static uint32_t *find(uint32_t ring, uint64_t user_data)
{
    uint32_t *link = chain_of(ring, user_data);
    while (*link != NONE && (entries[*link].user_data != user_data || entries[*link].ring != ring))
        link = &entries[*link].next;
    return link;
}

static void write_entry(struct tfi_thread *t, struct entry *e, int64_t result)
{
    if (e->recorded) tfi_uring_write(t, &e->op, result);
    e->recorded = false;
}

static void take_out(uint32_t *link)
{
    struct entry *e = &entries[*link];
    uint32_t at = *link;
    *link = e->next;
    e->open = 0;
    e->next = free_list;
    free_list = at;
}

void tfi_uring_add(struct tfi_thread *t, uint32_t ring, uint64_t user_data, const struct tfi_uring_op *op,
                   bool recorded)
{
    uint32_t *link = prepare() ? find(ring, user_data) : NULL;
    struct entry *e = link && *link != NONE ? &entries[*link] : NULL;
    if (e) {
        write_entry(t, e, TFI_IO_RESULT_UNKNOWN);
        e->open++;
    } else if (link && free_list != NONE) {
        uint32_t at = free_list;
        e = &entries[at];
        free_list = e->next;
        e->user_data = user_data;
        e->ring = ring;
        e->open = 1;
        e->recorded = recorded;
        if (recorded) e->op = *op;
        e->next = *link;
        *link = at;
        return;
    }
    if (recorded) tfi_uring_write(t, op, TFI_IO_RESULT_UNKNOWN);
}

void tfi_uring_complete(struct tfi_thread *t, uint32_t ring, uint64_t user_data, int32_t result)
{
    uint32_t *link = entries ? find(ring, user_data) : NULL;
    if (!link || *link == NONE) return;
    write_entry(t, &entries[*link], result);
    if (--entries[*link].open == 0) take_out(link);
}

void tfi_uring_give_up(struct tfi_thread *t, uint32_t ring)
{
    for (unsigned i = 0; entries && i < CHAINS; i++) {
        for (uint32_t *link = &chains[i]; *link != NONE;) {
            struct entry *e = &entries[*link];
            bool given_up = ring == TFI_RINGS || e->ring == ring;
            if (given_up) write_entry(t, e, TFI_IO_RESULT_UNKNOWN);
            if (given_up) take_out(link);
            else link = &e->next;
        }
    }
}
