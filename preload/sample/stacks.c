/* stacks.c - reads the Python stack of another thread at one moment, as far as it can be proven.
 *
 * The thread is free to run meanwhile, so what was read may mix several moments, and of two frames in such a mixture the
 * one may never have called the other. A stack counts whole if one of these proofs holds:
 *
 *   - The thread's processor time is the same before and after: it did not run. (It may have been stopped where a generator
 *     is being linked to its caller or unlinked, so the frames must fill the data stack from its start to its end.)
 *   - Another thread held the global lock last, before and after, and nobody has taken it in between: only a thread that
 *     holds the lock changes its frames.
 *   - A second copy of the frames, taken some 100 ns after the first, is the same; so is the state's pointer to the newest
 *     frame, before, between and after; and the frames fill the data stack likewise. Frames that lie elsewhere are read after
 *     those on the data stack, so all is then copied once more, and that is the second copy. (Up to 3.10 frames are objects of
 *     their own, which are linked before they run and until they have run: there the data stack has no part in it. A frame
 *     that has lost its caller does not run.)
 *
 * Otherwise it is cut, at once, to the outer frames of which the third proof holds. It is not read again: that would see
 * a later moment, and miss short calls. Only a chain that leads nowhere is followed again, and one with new code objects,
 * whose names were read after the copies. tests/python/test_samples.py judges each stack by the calls of its own program.
 */
#include "sample/stacks.h"

#include <string.h>
#include <sys/uio.h>

#include "base/sys.h"
#include "base/tfi.h"
#include "sample/outside.h"
#include "sample/tables.h"

enum {
    DEPTH = 1024,
    REGIONS = 16,
    COPY = 256 << 10,
    OUTSIDE = 512,
    FRAME = 128,
    STATE = 320,
    TRIES = 4,
    CHUNK_TOP = 16, /* in a chunk: words used, once it is not the newest */
    CHUNK_DATA = 24,
    CHUNK_FIRST = 8, /* the first chunk begins with an empty word */
    FRAME_HEAD = 72, /* the part of a frame from 3.11 on that does not change while it waits for its callee */
};

/* A chunk of the data stack, the newest first. */
struct region {
    uint64_t base, used, expected;
    char *bytes;
};

struct pass {
    uint64_t current, older; /* the newest frame; the next chunk to be read */
    unsigned nr_regions, nr_outside;
    size_t copied;
    struct region region[REGIONS];
    uint64_t at[OUTSIDE]; /* frames that lie elsewhere: of generators, and all up to 3.10 */
    char frame[OUTSIDE][FRAME];
    char copy[COPY];
};

struct step {
    uint64_t frame, code;
    int64_t at;
    const struct tfi_code *known;
    const char *bytes;
    int region; /* -1: outside */
};

static struct room {
    struct pass one, two;
    struct step step[DEPTH], before[DEPTH];
    uint64_t addresses[DEPTH];
    uint32_t texts[DEPTH];
    struct iovec here[OUTSIDE + 4], there[OUTSIDE + 4];
} * room;
static unsigned nr_steps;
static uint64_t pointer_mask;

static const struct tfi_python_layout *layout(void)
{
    return tfi_outside.layout;
}

static unsigned larger(unsigned a, int b)
{
    return b > 0 && (unsigned)b > a ? (unsigned)b : a;
}

unsigned tfi_state_bytes(void)
{
    const struct tfi_python_layout *o = layout();
    unsigned bytes = larger(larger(larger(larger(24, o->next), o->id), o->tid), o->current);
    return larger(larger(bytes, o->chunk + 8), o->cframe) + 8;
}

static unsigned frame_bytes(void)
{
    const struct tfi_python_layout *o = layout();
    return larger(larger(larger(larger(larger(0, o->code), o->previous), o->at), o->owner), FRAME_HEAD - 8) + 8;
}

/* ---- the global lock ---- */

bool tfi_gil_read(struct tfi_gil *gil, uint64_t interpreter)
{
    enum { HOLDER = 8, LOCKED = 16, SWITCHES = 24, BYTES = 32 };
    const struct tfi_python_layout *o = layout();
    char copy[BYTES];
    gil->address = 0;
    if (o->minor <= 11) gil->address = tfi_outside.runtime + (uint64_t)o->gil;
    else if (!tfi_outside_pull(&gil->address, interpreter + (uint64_t)o->gil, sizeof gil->address)) return false;
    if (!tfi_outside_pull(copy, gil->address, sizeof copy)) return false;
    gil->holder = tfi_pointer_in(copy, HOLDER);
    gil->locked = int_at(copy, LOCKED) == 1;
    gil->switches = tfi_pointer_in(copy, SWITCHES);
    return true;
}

/* ---- copies ---- */

/* Copies the next older chunk of the data stack; false if there is none. */
static bool copy_older(struct pass *pass)
{
    char head[CHUNK_DATA];
    uint64_t base = pass->older;
    pass->older = 0;
    if (!base || pass->nr_regions == REGIONS || !tfi_outside_pull(head, base, sizeof head)) return false;
    uint64_t used = CHUNK_DATA + 8 * tfi_pointer_in(head, CHUNK_TOP);
    if (used > COPY - pass->copied) return false;
    struct region *r = &pass->region[pass->nr_regions];
    *r = (struct region){base, used, 0, pass->copy + pass->copied};
    if (!tfi_outside_pull(r->bytes, base, used)) return false;
    pass->older = tfi_pointer_in(r->bytes, 0);
    pass->copied += used;
    pass->nr_regions++;
    return true;
}

/* `at` comes from a frame that may be gone, and may be any number: no sum with it is compared. */
static int region_of(const struct pass *pass, uint64_t at)
{
    for (unsigned i = 0; i < pass->nr_regions; i++) {
        const struct region *r = &pass->region[i];
        if (r->used >= FRAME_HEAD && at >= r->base && at - r->base <= r->used - FRAME_HEAD) return (int)i;
    }
    return -1;
}

/* The copy of a frame; NULL if it cannot be read. */
static const char *frame_at(struct pass *pass, uint64_t at, int *region)
{
    do *region = region_of(pass, at);
    while (*region < 0 && copy_older(pass));
    if (*region >= 0) return pass->region[*region].bytes + (at - pass->region[*region].base);
    for (unsigned i = 0; i < pass->nr_outside; i++)
        if (pass->at[i] == at) return pass->frame[i];
    if (pass->nr_outside == OUTSIDE || !tfi_outside_pull(pass->frame[pass->nr_outside], at, frame_bytes())) return NULL;
    pass->at[pass->nr_outside] = at;
    return pass->frame[pass->nr_outside++];
}

static void begin_pass(struct pass *pass, uint64_t base, uint64_t used)
{
    pass->nr_outside = 0;
    pass->older = 0;
    pass->nr_regions = base != 0;
    pass->copied = used;
    pass->region[0] = (struct region){base, used, 0, pass->copy};
}

/* Where the pointer to the newest frame lies. */
static uint64_t place_of_current(uint64_t state, const char *copy)
{
    uint64_t holder = layout()->cframe < 0 ? state : tfi_pointer_in(copy, layout()->cframe);
    return holder < 4096 ? 0 : holder + (uint64_t)layout()->current;
}

/* True if two copies of a thread's state lead to the same frames of the same thread. */
static bool is_same_state(const char *a, const char *b)
{
    const struct tfi_python_layout *o = layout();
    if (tfi_pointer_in(a, o->id) != tfi_pointer_in(b, o->id)) return false;
    if (o->cframe >= 0 && tfi_pointer_in(a, o->cframe) != tfi_pointer_in(b, o->cframe)) return false;
    return o->chunk < 0 || (tfi_pointer_in(a, o->chunk) == tfi_pointer_in(b, o->chunk) &&
                            tfi_pointer_in(a, o->chunk + 8) == tfi_pointer_in(b, o->chunk + 8));
}

/* Copies what leads to the frames, and their chunk, twice. All is one call, which reads the parts in this order. `*same`
 * tells that the newest frame and the end of the chunk were the same throughout. */
static bool copy_twice(uint64_t state, const char *copy, bool *same)
{
    const struct tfi_python_layout *o = layout();
    struct pass *one = &room->one, *two = &room->two;
    uint64_t place = place_of_current(state, copy), again = 0;
    uint64_t base = o->chunk < 0 ? 0 : tfi_pointer_in(copy, o->chunk);
    uint64_t used = base ? tfi_pointer_in(copy, o->chunk + 8) - base : 0;
    char after[STATE];
    if (!place || used > COPY || (base && used < CHUNK_DATA)) return false;
    begin_pass(one, base, used);
    begin_pass(two, base, used);
    struct iovec current = {(void *)place, 8}, chunk = {(void *)base, used};
    struct iovec there[] = {current, chunk, current, chunk, {(void *)state, tfi_state_bytes()}, current};
    struct iovec here[] = {{&one->current, 8}, {one->copy, used},          {&two->current, 8},
                           {two->copy, used},  {after, tfi_state_bytes()}, {&again, 8}};
    if (!tfi_outside_pull_all(here, there, TFI_COUNT(here))) return false;
    *same = one->current == again && one->current == two->current && is_same_state(after, copy);
    if (base) one->older = tfi_pointer_in(one->copy, 0), two->older = tfi_pointer_in(two->copy, 0);
    return true;
}

/* Up to 3.10: false if the frame has ended, or paused. One that a generator has just left, and one that was freed, has no
 * caller any more. */
static bool is_running(const char *frame)
{
    const struct tfi_python_layout *o = layout();
    return frame[o->owner] == (o->minor == 10 ? 0 : 1);
}

/* Follows the chain in the first copy; false if it leads nowhere. */
static bool walk(struct pass *pass)
{
    const struct tfi_python_layout *o = layout();
    uint64_t at = pass->current;
    nr_steps = 0;
    for (unsigned passed = 0; at; passed++) {
        int region;
        const char *f = passed < 2 * DEPTH && nr_steps < DEPTH ? frame_at(pass, at, &region) : NULL;
        if (!f) return false;
        if (o->minor <= 10 && tfi_pointer_in(f, TFI_OBJECT_TYPE) != tfi_outside.frame) return false;
        if (o->minor <= 10 && !tfi_pointer_in(f, o->previous) && !is_running(f)) return false;
        uint64_t code = tfi_pointer_in(f, o->code) & pointer_mask;
        int64_t place = o->minor <= 10 ? int_at(f, o->at) : (int64_t)tfi_pointer_in(f, o->at);
        if (o->minor < 12 || f[o->owner] < TFI_PYTHON_SHIM)
            room->step[nr_steps++] = (struct step){at, code, place, NULL, f, region};
        at = tfi_pointer_in(f, o->previous);
    }
    return nr_steps > 0;
}

/* ---- code ---- */

/* Finds the code of each frame and the place in it; false if one of them makes no sense. */
static bool check_codes(bool *news)
{
    const struct tfi_python_layout *o = layout();
    unsigned count = 0;
    for (unsigned i = 0; i < nr_steps; i++) {
        unsigned seen = 0;
        while (seen < count && seen < 8 && room->addresses[count - 1 - seen] != room->step[i].code) seen++;
        if (seen == count || seen == 8)
            room->addresses[count++] = room->step[i].code; /* recursion repeats itself soon */
    }
    if (!tfi_codes_check(room->addresses, count, news)) return false;
    for (unsigned i = 0; i < nr_steps; i++) {
        struct step *s = &room->step[i];
        s->known = tfi_code_find(s->code);
        if (!s->known) return false;
        int64_t at = o->minor == 10 ? 2 * s->at : s->at;
        if (o->adaptive >= 0) at -= (int64_t)(s->code + (uint64_t)o->adaptive);
        if (at < -2 || (s->known->size ? at >= (int64_t)s->known->size || at & 1 : at > 1 << 24)) return false;
        s->at = at;
    }
    return true;
}

/* ---- proofs ---- */

/* True if a frame was not read together with the newest chunk, but later. */
static bool was_read_later(void)
{
    for (unsigned i = 0; i < nr_steps; i++)
        if (room->step[i].region != 0) return true;
    return false;
}

static void add_piece(unsigned *count, void *to, uint64_t from, size_t bytes)
{
    room->here[*count] = (struct iovec){to, bytes};
    room->there[(*count)++] = (struct iovec){(void *)from, bytes};
}

/* Makes the second copy anew, in one call, after all frames of the first were read. */
static void copy_again(uint64_t state, const char *copy, bool *same)
{
    struct pass *one = &room->one, *two = &room->two;
    unsigned count = 0;
    uint64_t base = one->region[0].base, used = one->region[0].used, place = place_of_current(state, copy), again = 0;
    char after[STATE];
    begin_pass(two, base, used);
    add_piece(&count, &two->current, place, 8);
    add_piece(&count, two->copy, base, used);
    for (unsigned i = 0; i < one->nr_outside; i++) add_piece(&count, two->frame[i], one->at[i], frame_bytes());
    add_piece(&count, after, state, tfi_state_bytes());
    add_piece(&count, &again, place, 8);
    bool whole = tfi_outside_pull_all(room->here, room->there, count);
    *same = whole && *same && two->current == one->current && again == one->current && is_same_state(after, copy);
    if (base) two->older = tfi_pointer_in(two->copy, 0);
    if (!whole) return; /* each frame is read by itself */
    memcpy(two->at, one->at, one->nr_outside * sizeof one->at[0]);
    two->nr_outside = one->nr_outside;
}

/* True if a frame that waits for its callee is the same in both copies. */
static bool is_same_frame(const struct step *s, const char *a, const char *b)
{
    const struct tfi_python_layout *o = layout();
    if (o->chunk >= 0)
        return memcmp(a, b, s->region >= 0 && s->known->frame_bytes ? s->known->frame_bytes : FRAME_HEAD) == 0;
    return tfi_pointer_in(a, o->code) == tfi_pointer_in(b, o->code) && int_at(a, o->at) == int_at(b, o->at) &&
           tfi_pointer_in(a, o->previous) == tfi_pointer_in(b, o->previous);
}

static bool is_same_call(const char *a, const char *b)
{
    const struct tfi_python_layout *o = layout();
    return tfi_pointer_in(a, o->code) == tfi_pointer_in(b, o->code) &&
           tfi_pointer_in(a, o->previous) == tfi_pointer_in(b, o->previous);
}

/* The number of outermost frames that the second copy has too. Of the innermost frame only the caller and the code must be
 * the same. */
static unsigned agreed(struct pass *two)
{
    for (unsigned n = 0; n < nr_steps; n++) {
        const struct step *s = &room->step[nr_steps - 1 - n];
        int region;
        const char *f = frame_at(two, s->frame, &region);
        if (!f || (region >= 0) != (s->region >= 0)) return n;
        if (region >= 0 && s->frame + s->known->frame_bytes > two->region[region].base + two->region[region].used)
            return n;
        bool innermost = n == nr_steps - 1;
        if (innermost && two->current != s->frame) return n;
        if (innermost && !is_same_call(f, s->bytes)) return n;
        if (!innermost && !is_same_frame(s, f, s->bytes)) return n + is_same_call(f, s->bytes);
    }
    return nr_steps;
}

/* The number of outermost frames that fill the data stack from its start without a gap; all only if the innermost one ends
 * where its used part ends. */
static unsigned end_to_end(struct pass *one)
{
    unsigned proven = 0;
    if (layout()->chunk < 0) return nr_steps;
    for (unsigned i = 0; i < one->nr_regions; i++) {
        struct region *r = &one->region[i];
        r->expected = r->base + CHUNK_DATA + (tfi_pointer_in(r->bytes, 0) ? 0 : CHUNK_FIRST);
    }
    int before = -1;
    for (unsigned n = 0; n < nr_steps; n++) {
        const struct step *s = &room->step[nr_steps - 1 - n];
        if (s->region < 0) continue; /* a generator's */
        struct region *r = &one->region[s->region];
        if (before >= 0 && before != s->region) {
            const struct region *older = &one->region[before];
            if (s->region != before - 1 || older->expected != older->base + older->used) return proven;
        }
        if (s->frame != r->expected) return proven;
        r->expected += s->known->frame_bytes;
        before = s->region;
        proven = n + 1;
    }
    const struct region *newest = &one->region[0];
    return one->nr_regions && newest->expected == newest->base + newest->used ? nr_steps : proven;
}

/* Up to 3.10: follows the chain a second time, from what is the newest frame now, and returns the number of outermost frames
 * that both have. A frame that was left in between leads nowhere, and would agree with itself. */
static unsigned followed_again(uint64_t state)
{
    unsigned before = nr_steps, n = 0;
    struct pass *two = &room->two;
    memcpy(room->before, room->step, before * sizeof room->step[0]);
    begin_pass(two, 0, 0);
    bool good = tfi_outside_pull(&two->current, state + (uint64_t)layout()->current, 8) && walk(two);
    for (unsigned again = nr_steps; good && n < before && n < again; n++) {
        const struct step *a = &room->before[before - 1 - n], *b = &room->step[again - 1 - n];
        if (a->frame != b->frame || a->code != b->code ||
            int_at(b->bytes, layout()->at) != int_at(a->bytes, layout()->at))
            break;
    }
    nr_steps = before;
    memcpy(room->step, room->before, before * sizeof room->step[0]);
    return n;
}

/* The number of outermost frames that count. */
static unsigned proven_frames(uint64_t state, const char *copy, bool same)
{
    if (was_read_later()) copy_again(state, copy, &same);
    if (layout()->chunk < 0) return same && agreed(&room->two) == nr_steps ? nr_steps : followed_again(state);
    unsigned filled = end_to_end(&room->one), outer = agreed(&room->two);
    if (outer == nr_steps && !same) outer--; /* another frame runs already */
    return outer < filled ? outer : filled;
}

/* ---- the stack ---- */

/* Gives the stack its number: of the outermost `count` frames, at most the innermost TFI_STACK_FRAMES of them. */
static void number_stack(struct tfi_stack *stack, unsigned count, bool *news)
{
    unsigned kept = count < TFI_STACK_FRAMES ? count : TFI_STACK_FRAMES;
    const struct step *step = room->step + (nr_steps - count);
    for (unsigned i = 0; i < kept; i++) {
        room->texts[i] = tfi_code_text(step[i].known, step[i].at, news);
        if (tfi_text_is_import(room->texts[i])) stack->flags |= TFI_SAMPLED_IMPORT;
    }
    if (kept < count) stack->flags |= TFI_SAMPLED_OUTER_CUT;
    stack->number = tfi_sample_stack(room->texts, kept);
    if (!stack->number) stack->flags |= TFI_SAMPLED_UNREADABLE;
}

/* Reads the stack once; false if it is to be read again. */
static bool read_once(struct tfi_stack *stack, uint64_t state, const char *copy, const struct tfi_gil *gil,
                      uint32_t tid, uint64_t *cpu, bool *still, bool last)
{
    bool same = false, news = false;
    uint64_t before = *cpu;
    struct tfi_gil after = *gil;
    stack->flags = TFI_SAMPLED_UNREADABLE;
    if (!copy_twice(state, copy, &same)) return false;
    if (!room->one.current) {
        stack->flags = TFI_SAMPLED_NO_PYTHON;
        *still = tfi_outside_cpu(tid, cpu) && *cpu == before;
        return true;
    }
    if (!walk(&room->one) || !check_codes(&news)) return false;
    unsigned count = nr_steps;
    *still = tfi_outside_cpu(tid, cpu) && *cpu == before;
    bool frozen = gil->address && gil->holder != state &&
                  tfi_gil_read(&after, tfi_pointer_in(copy, TFI_THREAD_INTERPRETER)) && after.holder != state &&
                  after.switches == gil->switches;
    if (*still && !frozen) count = end_to_end(&room->one);
    else if (!frozen) count = proven_frames(state, copy, same);
    if (!count) return true;
    stack->flags = count < nr_steps ? TFI_SAMPLED_INNER_CUT : 0;
    number_stack(stack, count, &news);
    return !news || last;
}

void tfi_stack_read(struct tfi_stack *stack, uint64_t state, const char *copy, const struct tfi_gil *gil, uint32_t tid,
                    uint64_t *cpu, bool *still)
{
    char again[STATE];
    struct tfi_gil now = *gil;
    *stack = (struct tfi_stack){0, TFI_SAMPLED_UNREADABLE};
    *still = false;
    if (!room) {
        room = tfi_map(sizeof *room);
        pointer_mask = layout()->minor >= 14 ? ~(uint64_t)7 : ~(uint64_t)0;
    }
    if (!room) return;
    if (layout()->chunk >= 0 && !tfi_pointer_in(copy, layout()->chunk)) {
        stack->flags = TFI_SAMPLED_NO_PYTHON; /* it has run none yet */
        return;
    }
    memcpy(again, copy, tfi_state_bytes());
    for (int i = 0; i < TRIES && !read_once(stack, state, again, &now, tid, cpu, still, i == TRIES - 1); i++) {
        stack->number = 0;
        if (gil->address && !tfi_gil_read(&now, tfi_pointer_in(copy, TFI_THREAD_INTERPRETER))) return;
        if (!tfi_outside_pull(again, state, tfi_state_bytes())) return;
        if (tfi_pointer_in(again, layout()->id) != tfi_pointer_in(copy, layout()->id)) return;
    }
}
