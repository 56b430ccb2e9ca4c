/* dfanalyzer.c - implements dftracer-analyzer's time of a layer. */
#include "ask/io/dfanalyzer.h"

#include <stdlib.h>

enum { SHORTEST_TAIL = 1024 };
static const int64_t second_ns = 1000000000;

static int64_t second_of(int64_t time)
{
    return time / second_ns - (time % second_ns < 0);
}

static int by_place(const void *a, const void *b)
{
    const struct io_slice *x = a, *y = b;
    if (x->second != y->second) return by_number(x->second, y->second);
    if (x->process != y->process) return by_number(x->process, y->process);
    return x->thread != y->thread ? by_number(x->thread, y->thread) : by_number(x->function, y->function);
}

static void settle(struct io_slices *s)
{
    size_t kept = 0;
    if (s->settled == s->count) return;
    qsort(s->slice, s->count, sizeof *s->slice, by_place);
    for (size_t i = 0; i < s->count; i++) {
        struct io_slice *last = kept ? &s->slice[kept - 1] : NULL;
        if (last && by_place(last, &s->slice[i]) == 0) {
            last->total = add_ns(last->total, s->slice[i].total);
            last->earliest = MIN(last->earliest, s->slice[i].earliest);
        } else {
            s->slice[kept++] = s->slice[i];
        }
    }
    s->count = s->settled = kept;
}

static void add(struct io_slices *s, struct io_slice slice)
{
    if (s->count - s->settled > s->settled + SHORTEST_TAIL) settle(s);
    s->slice = mem_grow(s->slice, &s->capacity, s->count + 1, sizeof *s->slice);
    s->slice[s->count++] = slice;
}

void io_slices_call(struct io_slices *slices, const struct ios *ios, size_t call)
{
    enum io_kind kind = ios->of_name[ios->function[call]].kind;
    int64_t start = ios->start[call], middle = start + (ios->end[call] - start) / 2;
    slices->calls += ios_calls(ios, call);
    if (kind == IO_READ || kind == IO_WRITE) slices->bytes += ios_bytes(ios, call);
    add(slices,
        (struct io_slice){second_of(middle), 0, ios->thread[call], ios->function[call], start, ios_time(ios, call)});
}

void io_slices_add(struct io_slices *slices, const struct io_slices *from, uint32_t process)
{
    slices->calls += from->calls;
    slices->bytes += from->bytes;
    for (size_t i = 0; i < from->count; i++) {
        struct io_slice slice = from->slice[i];
        slice.process = process;
        add(slices, slice);
    }
}

int64_t io_slices_time(struct io_slices *slices, int64_t first)
{
    int64_t total = 0;
    settle(slices);
    for (size_t i = 0; i < slices->count; i++) {
        slices->slice[i].second = second_of(slices->slice[i].earliest - first);
        slices->slice[i].function = 0;
    }
    slices->settled = 0;
    settle(slices);
    for (size_t i = 0; i < slices->count;) {
        int64_t longest = 0, second = slices->slice[i].second;
        for (; i < slices->count && slices->slice[i].second == second; i++)
            longest = MAX(longest, slices->slice[i].total);
        total = add_ns(total, longest);
    }
    slices->count = slices->settled = 0;
    return total;
}

void io_slices_free(struct io_slices *slices)
{
    free(slices->slice);
    *slices = (struct io_slices){0};
}
