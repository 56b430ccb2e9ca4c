/* comm_rows.c - computes one row for each collective of a summary. */
#include "ask/comm/comm_rows.h"

#include <math.h>
#include <stdlib.h>

#include "base/statistics.h"

/* ---- sizes ---- */

static uint64_t times(uint64_t bytes, int64_t ranks)
{
    uint64_t product;
    bool known = bytes != UNKNOWN_COUNT && ranks > 0 && !__builtin_mul_overflow(bytes, (uint64_t)ranks, &product);
    return known ? product : UNKNOWN_COUNT;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a == UNKNOWN_COUNT ? b : b == UNKNOWN_COUNT ? a : MAX(a, b);
}

uint64_t comm_bytes(const struct comm_part *part)
{
    switch (collective_kinds[part->op].whole) {
    case WHOLE_INPUT: return larger(part->bytes_in, times(part->bytes_out, part->size));
    case WHOLE_OUTPUT: return larger(part->bytes_out, times(part->bytes_in, part->size));
    default: return larger(part->bytes_in, part->bytes_out);
    }
}

/* ---- one row ---- */

/* Subtracts and saturates. */
static int64_t since(int64_t start, int64_t end)
{
    return add_ns(end, -start);
}

static bool has_work(const struct comm_part *part)
{
    return part->start != UNKNOWN_TIME && part->end != UNKNOWN_TIME;
}

/* Returns when a rank came: when its work began, or its call if the work of some rank is unknown. */
static int64_t arrival(const struct comm_row *row, const struct comm_part *part)
{
    return row->has_work ? part->start : part->call_start;
}

static void look_at_parts(struct comm_row *row)
{
    row->compared = row->parts > 1;
    row->has_work = true;
    for (size_t i = 0; i < row->parts; i++) {
        const struct comm_part *part = &row->part[i];
        row->ranks += !i || part->rank != part[-1].rank;
        row->mismatch |= part->op != row->part->op && part->op_key == row->part->op_key &&
                         part->source == UNKNOWN_NUMBER && !part->alone;
        row->has_work &= has_work(part);
        row->compared &= part->axis == row->part->axis;
        row->bytes = larger(row->bytes, comm_bytes(part));
    }
    for (size_t i = 0; i < row->parts; i++) row->compared &= arrival(row, &row->part[i]) != UNKNOWN_TIME;
    row->compared &= row->ranks == row->parts;
}

/* Takes what NCCL chose, where the parts that know it agree. */
static void take_choice(struct comm_row *row)
{
    bool algorithm = true, protocol = true, channels = true;
    for (size_t i = 0; i < row->parts; i++) {
        const struct comm_part *part = &row->part[i];
        algorithm &= part->algorithm == NAME_NONE || row->algorithm == NAME_NONE || row->algorithm == part->algorithm;
        protocol &= part->protocol == NAME_NONE || row->protocol == NAME_NONE || row->protocol == part->protocol;
        channels &=
            part->channels == UNKNOWN_NUMBER || row->channels == UNKNOWN_NUMBER || row->channels == part->channels;
        if (part->algorithm != NAME_NONE) row->algorithm = part->algorithm;
        if (part->protocol != NAME_NONE) row->protocol = part->protocol;
        row->channels = MAX(row->channels, part->channels);
    }
    if (!algorithm) row->algorithm = NAME_NONE;
    if (!protocol) row->protocol = NAME_NONE;
    if (!channels) row->channels = UNKNOWN_NUMBER;
}

static void take_durations(struct comm_row *row, bool meets)
{
    const struct comm_part *shortest = NULL;
    for (size_t i = 0; i < row->parts; i++) {
        const struct comm_part *part = &row->part[i];
        if (!has_work(part)) continue;
        int64_t time = since(part->start, part->end);
        if (!shortest || time < since(shortest->start, shortest->end)) shortest = part;
        row->duration = MAX(row->duration, time);
    }
    if (!shortest) return;
    row->shortest = since(shortest->start, shortest->end);
    if (meets || row->parts == 1) row->transfer = row->shortest;
    if (meets && row->parts > 1 && row->has_work) row->last = shortest->rank;
}

/* Compares starts and ends, of parts on one clock. */
static void take_skew(struct comm_row *row, bool meets)
{
    const struct comm_part *last = row->part, *slowest = row->part;
    int64_t earliest = arrival(row, last), first_end = last->end;
    for (size_t i = 0; i < row->parts; i++) {
        const struct comm_part *part = &row->part[i];
        if (arrival(row, part) > arrival(row, last)) last = part;
        if (part->end > slowest->end) slowest = part;
        earliest = MIN(earliest, arrival(row, part));
        first_end = MIN(first_end, part->end);
    }
    row->latest = arrival(row, last);
    row->skew = since(earliest, row->latest);
    row->last = last->rank;
    if (!row->has_work) return;
    row->end_skew = since(first_end, slowest->end);
    row->slowest = slowest->rank;
    if (!meets) row->transfer = MAX(since(row->latest, slowest->end), 0);
}

static struct comm_row new_row(const struct comm_part *part, size_t parts)
{
    int64_t first = INT64_MAX, size = UNKNOWN_NUMBER;
    bool is_chosen = false;
    for (size_t i = 0; i < parts; i++) {
        first = MIN(first, part[i].start != UNKNOWN_TIME ? part[i].start : part[i].call_start);
        is_chosen |= part[i].is_chosen;
        size = MAX(size, part[i].size);
    }
    return (struct comm_row){.part = part,
                             .first = first,
                             .is_chosen = is_chosen,
                             .size = size,
                             .parts = parts,
                             .bytes = UNKNOWN_COUNT,
                             .skew = UNKNOWN_TIME,
                             .end_skew = UNKNOWN_TIME,
                             .transfer = UNKNOWN_TIME,
                             .duration = UNKNOWN_TIME,
                             .shortest = UNKNOWN_TIME,
                             .last = UNKNOWN_NUMBER,
                             .slowest = UNKNOWN_NUMBER,
                             .channels = UNKNOWN_NUMBER,
                             .algorithm_gb = NAN,
                             .bus_gb = NAN};
}

static void fill_row(struct comm_row *row)
{
    bool meets = collective_kinds[row->part->op].meets;
    look_at_parts(row);
    take_choice(row);
    take_durations(row, meets);
    if (row->compared) take_skew(row, meets);
    if (row->bytes != UNKNOWN_COUNT && row->transfer > 0) {
        row->algorithm_gb = (double)row->bytes / (double)row->transfer;
        row->bus_gb = row->algorithm_gb * collective_bus_factor(row->part->op, row->size);
    }
}

int64_t comm_wait(const struct comm_row *row, const struct comm_part *part)
{
    if (row->compared) return since(arrival(row, part), row->latest);
    bool by_duration = collective_kinds[row->part->op].meets && row->has_work && row->parts > 1;
    return by_duration ? since(row->shortest, since(part->start, part->end)) : UNKNOWN_TIME;
}

/* ---- all rows ---- */

static int by_first_start(const void *a, const void *b)
{
    const struct comm_row *x = a, *y = b;
    if (x->part->run != y->part->run) return x->part->run < y->part->run ? -1 : 1;
    return x->first != y->first ? (x->first < y->first ? -1 : 1) : (x->part > y->part) - (x->part < y->part);
}

/* True if a rank left before another came, although the operation keeps all together. */
static bool is_apart(const struct comm_row *row)
{
    int64_t first_end = INT64_MAX;
    if (!row->compared || !row->has_work || !collective_kinds[row->part->op].meets) return false;
    for (size_t i = 0; i < row->parts; i++) first_end = MIN(first_end, row->part[i].end);
    return row->latest > first_end;
}

static void count_row(struct comm_rows *rows, const struct comm_row *row)
{
    rows->incomplete += row->size > 0 && row->ranks < (size_t)row->size;
    rows->mismatched += row->mismatch;
    rows->ungrouped += row->part->group == NAME_NONE;
    rows->apart += row->part->replay && is_apart(row);
}

void comm_rows_make(struct comm_rows *rows, const struct comm_summary *s, const struct comm_rules *rules)
{
    struct values spread = {0}; /* of the ends of collectives that all ranks leave at nearly the same moment */
    *rows = (struct comm_rows){.simple = rules && rules->is_simple(s), .residual = UNKNOWN_TIME};
    for (size_t first = 0, end; first < s->count; first = end) {
        end = comm_key_end(s, first);
        struct comm_row row = new_row(&s->part[first], end - first);
        bool told = !rules || rules->row(&row, s->names, rows->simple);
        if (!rules) fill_row(&row);
        if (collective_kinds[row.part->op].meets && row.end_skew != UNKNOWN_TIME) values_add(&spread, row.end_skew);
        rows->untold += row.is_chosen && !told;
        if (!row.is_chosen || !told) continue;
        rows->row = mem_grow(rows->row, &rows->capacity, rows->count + 1, sizeof *rows->row);
        rows->row[rows->count++] = row;
        count_row(rows, &row);
    }
    if (rows->count) qsort(rows->row, rows->count, sizeof *rows->row, by_first_start);
    values_sort(&spread);
    if (spread.count && !rules) rows->residual = values_percentile(&spread, 0.5);
    values_free(&spread);
}

void comm_rows_free(struct comm_rows *rows)
{
    free(rows->row);
    *rows = (struct comm_rows){0};
}
