/* comm_saved.c - packs and unpacks collectives, samples of devices, and facts, as tables.
 *
 * The texts of names stand before the tables. What comm_collect sets of a part is not saved.
 */
#include "ask/comm/comm_saved.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "ask/causes/facts.h"

enum { MOST_NAMES = 1 << 20 };

#define PART(member, type)                                                                                             \
    {                                                                                                                  \
        offsetof(struct comm_part, member), type                                                                       \
    }
static const struct packed_column part_columns[] = {
    PART(group, PACKED_NAME),      PART(members, PACKED_NAME),  PART(op_key, PACKED_U32),
    PART(source, PACKED_64),       PART(peer, PACKED_64),       PART(alone, PACKED_64),
    PART(sequence, PACKED_64),     PART(replay, PACKED_64),     PART(op, PACKED_U8),
    PART(name, PACKED_NAME),       PART(datatype, PACKED_NAME), PART(stage, PACKED_NAME),
    PART(algorithm, PACKED_NAME),  PART(protocol, PACKED_NAME), PART(channels, PACKED_64),
    PART(step, PACKED_64),         PART(size, PACKED_64),       PART(elements_in, PACKED_64),
    PART(elements_out, PACKED_64), PART(bytes_in, PACKED_64),   PART(bytes_out, PACKED_64),
    PART(root, PACKED_64),         PART(stream, PACKED_64),     PART(call_start, PACKED_64),
    PART(start, PACKED_64),        PART(end, PACKED_64),
};

#define HEALTH(member, type)                                                                                           \
    {                                                                                                                  \
        offsetof(struct health, member), type                                                                          \
    }
static const struct packed_column health_columns[] = {
    HEALTH(step, PACKED_64),
    HEALTH(sum.samples, PACKED_64),
    HEALTH(sum.clocks, PACKED_64),
    HEALTH(sum.clock_sum, PACKED_64),
    HEALTH(sum.powers, PACKED_64),
    HEALTH(sum.power_sum, PACKED_64),
    HEALTH(sum.temperatures, PACKED_64),
    HEALTH(sum.reasons_known, PACKED_64),
    HEALTH(sum.reasons, PACKED_64),
    HEALTH(sum.clock_least, PACKED_U32),
    HEALTH(sum.temperature_most, PACKED_U32),
};

#define WORK(member, type)                                                                                             \
    {                                                                                                                  \
        offsetof(struct work_fact, member), type                                                                       \
    }
static const struct packed_column work_columns[] = {
    WORK(name, PACKED_NAME), WORK(is_copy, PACKED_U8),   WORK(size, PACKED_64),
    WORK(calls, PACKED_64),  WORK(median[0], PACKED_64), WORK(median[1], PACKED_64),
};

#define GAP(member, type)                                                                                              \
    {                                                                                                                  \
        offsetof(struct gap_fact, member), type                                                                        \
    }
static const struct packed_column gap_columns[] = {
    GAP(step, PACKED_64), GAP(place, PACKED_64), GAP(op, PACKED_U8),   GAP(bytes, PACKED_64),
    GAP(size, PACKED_64), GAP(idle, PACKED_64),  GAP(time, PACKED_64),
};

/* ---- packing ---- */

static void pack_replays(struct text *to, const struct comm_replays *replays)
{
    pack_number(to, replays->sum.captured);
    pack_number(to, replays->sum.idle);
    pack_number(to, replays->sum.untimed);
    pack_number(to, replays->sum.kernels);
    pack_number(to, replays->sum.left_out);
    pack_number(to, replays->unknown);
}

static void pack_tables(struct text *to, struct packed_names *names, const struct comm_taken *taken)
{
    const struct rank_facts *facts = taken->facts;
    pack_rows(to, names, taken->parts.part, taken->parts.count, sizeof *taken->parts.part, part_columns,
              ARRAY_SIZE(part_columns));
    pack_rows(to, names, taken->healths.health, taken->healths.count, sizeof *taken->healths.health, health_columns,
              ARRAY_SIZE(health_columns));
    pack_number(to, facts->devices);
    pack_number(to, facts->has_steps);
    pack_rows(to, names, facts->work, facts->works, sizeof *facts->work, work_columns, ARRAY_SIZE(work_columns));
    pack_rows(to, names, facts->gap, facts->gaps, sizeof *facts->gap, gap_columns, ARRAY_SIZE(gap_columns));
}

void comm_save(struct text *to, const struct comm_taken *taken)
{
    struct packed_names names = {0};
    struct text tables = {0};
    pack_number(to, taken->has_collectives);
    pack_replays(to, &taken->replays);
    pack_tables(&tables, &names, taken);
    pack_number(to, names.count);
    for (size_t i = 0; i < names.count; i++) {
        const struct name *name = names_get(taken->parts.names, names.name[i]);
        pack_bytes(to, name->text, name->length);
    }
    text_add(to, tables.data, tables.length);
    text_free(&tables);
    map_free(&names.place);
    free(names.name);
}

/* ---- unpacking ---- */

static uint32_t *unpack_names(struct unpacking *from, struct names *names, size_t *count)
{
    *count = unpack_count(from, 1);
    from->bad |= *count > MOST_NAMES;
    uint32_t *name = mem_zero(*count, sizeof *name);
    for (size_t i = 0; i < *count && !from->bad; i++) {
        size_t length;
        const char *text = unpack_bytes(from, &length);
        if (!from->bad) name[i] = names_add(names, text, length);
    }
    return name;
}

static void unpack_replays(struct unpacking *from, struct comm_replays *replays)
{
    replays->sum.captured = unpack_number(from);
    replays->sum.idle = unpack_number(from);
    replays->sum.untimed = unpack_number(from);
    replays->sum.kernels = unpack_number(from);
    replays->sum.left_out = unpack_number(from);
    replays->unknown = unpack_number(from);
}

/* Sets what is not saved of the parts, and checks what is. */
static void complete_parts(struct unpacking *from, struct comm_summary *parts, int64_t rank)
{
    for (size_t i = 0; i < parts->count; i++) {
        struct comm_part *part = &parts->part[i];
        from->bad |= part->op >= NR_COLLECTIVE_OPS;
        part->rank = rank;
        part->is_chosen = true;
        part->file_duration_us = -1;
    }
}

static struct rank_facts *unpack_facts(struct unpacking *from, const uint32_t *name, size_t names)
{
    struct rank_facts *facts = mem_zero(1, sizeof *facts);
    facts->devices = (size_t)unpack_number(from);
    facts->has_steps = unpack_number(from) != 0;
    facts->work =
        unpack_rows(from, name, names, &facts->works, sizeof *facts->work, work_columns, ARRAY_SIZE(work_columns));
    facts->gap = unpack_rows(from, name, names, &facts->gaps, sizeof *facts->gap, gap_columns, ARRAY_SIZE(gap_columns));
    for (size_t i = 0; i < facts->works; i++) from->bad |= *(const uint8_t *)&facts->work[i].is_copy > 1;
    for (size_t i = 0; i < facts->gaps; i++) from->bad |= facts->gap[i].place < 0 || facts->gap[i].place > INT32_MAX;
    return facts;
}

static void unpack_tables(struct unpacking *from, struct comm_taken *taken, struct names *names, int64_t rank,
                          bool facts)
{
    size_t count;
    uint32_t *name = unpack_names(from, names, &count);
    taken->parts.part = unpack_rows(from, name, count, &taken->parts.count, sizeof *taken->parts.part, part_columns,
                                    ARRAY_SIZE(part_columns));
    taken->parts.capacity = taken->parts.count;
    complete_parts(from, &taken->parts, rank);
    taken->healths.health = unpack_rows(from, name, count, &taken->healths.count, sizeof *taken->healths.health,
                                        health_columns, ARRAY_SIZE(health_columns));
    taken->healths.capacity = taken->healths.count;
    for (size_t i = 0; i < taken->healths.count; i++) taken->healths.health[i].rank = rank;
    if (facts) taken->facts = unpack_facts(from, name, count);
    free(name);
}

/* Leaves nothing of a damaged block. */
static void empty(struct comm_taken *taken)
{
    taken->has_collectives = false;
    taken->parts.count = taken->healths.count = 0;
    taken->replays = (struct comm_replays){0};
    if (taken->facts) taken->facts->works = taken->facts->gaps = 0;
}

struct comm_taken *comm_restore(struct unpacking *from, struct names *names, int64_t rank, bool facts)
{
    struct comm_taken *taken = mem_zero(1, sizeof *taken);
    taken->parts.names = names;
    taken->has_collectives = unpack_number(from) != 0;
    unpack_replays(from, &taken->replays);
    unpack_tables(from, taken, names, rank, facts);
    if (from->bad) empty(taken);
    return taken;
}
