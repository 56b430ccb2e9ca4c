/* buckets.c - implements counts of calls by time. */
#include "ask/io/buckets.h"

#include <stdlib.h>
#include <string.h>

enum { SHORTEST = 1000000 };

static int64_t divide_down(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

static void bucket_add(struct io_bucket *bucket, const struct io_bucket *what)
{
    bucket->calls += what->calls;
    bucket->transfers += what->transfers;
    bucket->read_bytes += what->read_bytes;
    bucket->write_bytes += what->write_bytes;
    bucket->total = add_ns(bucket->total, what->total);
    bucket->moving = add_ns(bucket->moving, what->moving);
}

/* Doubles the width. */
static void widen(struct io_buckets *b)
{
    int64_t first = divide_down(b->first, 2);
    struct io_bucket *wider = mem_zero(IO_BUCKETS, sizeof *wider);
    for (size_t i = 0; i < b->count; i++)
        bucket_add(&wider[divide_down(b->first + (int64_t)i, 2) - first], &b->bucket[i]);
    b->count = b->count ? (size_t)(divide_down(b->first + (int64_t)b->count - 1, 2) - first) + 1 : 0;
    free(b->bucket);
    b->bucket = wider;
    b->first = first;
    b->width *= 2;
}

/* Returns the bucket of a moment, and makes room for it. */
static struct io_bucket *bucket_at(struct io_buckets *b, int64_t time)
{
    int64_t number, low, high;
    if (!b->bucket) {
        b->bucket = mem_zero(IO_BUCKETS, sizeof *b->bucket);
        b->width = b->width ? b->width : SHORTEST;
        b->first = divide_down(time, b->width);
    }
    for (;;) {
        number = divide_down(time, b->width);
        low = MIN(number, b->first);
        high = MAX(number, b->first + (int64_t)b->count - 1);
        if (high - low < IO_BUCKETS) break;
        widen(b);
    }
    if (low < b->first && b->count) {
        memmove(b->bucket + (b->first - low), b->bucket, b->count * sizeof *b->bucket);
        memset(b->bucket, 0, (size_t)(b->first - low) * sizeof *b->bucket);
    }
    b->first = low;
    b->count = (size_t)(high - low) + 1;
    return &b->bucket[number - low];
}

void io_buckets_call(struct io_buckets *buckets, const struct ios *ios, size_t call)
{
    enum io_kind kind = ios->of_name[ios->function[call]].kind;
    bool moves = kind == IO_READ || kind == IO_WRITE || kind == IO_COPY;
    uint64_t bytes = moves ? ios_bytes(ios, call) : 0;
    int64_t time = ios_time(ios, call);
    const struct io_bucket what = {.calls = ios_calls(ios, call),
                                   .transfers = bytes ? ios_calls(ios, call) : 0,
                                   .read_bytes = kind == IO_WRITE ? 0 : bytes,
                                   .write_bytes = kind == IO_READ ? 0 : bytes,
                                   .total = time,
                                   .moving = moves ? time : 0};
    bucket_add(bucket_at(buckets, ios->start[call]), &what);
}

void io_buckets_add(struct io_buckets *buckets, const struct io_buckets *from)
{
    while (buckets->bucket && buckets->width < from->width) widen(buckets);
    if (!buckets->bucket) buckets->width = from->width;
    for (size_t i = 0; i < from->count; i++)
        bucket_add(bucket_at(buckets, (from->first + (int64_t)i) * from->width), &from->bucket[i]);
}

void io_buckets_free(struct io_buckets *buckets)
{
    free(buckets->bucket);
    *buckets = (struct io_buckets){0};
}
