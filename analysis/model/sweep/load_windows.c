/* load_windows.c - loads the operators and blocks of some times from a trace of ours whose process holds all else.
 *
 * The chunks that may have some are read again. If an operator among them has a forward or backward operator, which may
 * lie at any time, all chunks are read once more for that one's time and thread. Memory grows with the part, not with
 * the length of the run.
 */
#include "model/sweep/load_windows.h"

#include <stdlib.h>

#include "model/load/load.h"

/* The ends of an arrow from a forward operator to its backward one. */
struct arrow {
    struct op_link forward, backward;
    uint64_t backward_end; /* ticks */
    bool has_forward, has_backward;
};

struct arrows {
    struct map sequences; /* short numbers for the sequence numbers of the part's operators */
    struct map of;        /* index by number of the sequence number and forward thread */
    struct arrow *arrow;
    size_t count, capacity;
};

/* ---- chunks ---- */

static void take_group(struct load *load, struct group *group, void (*take)(struct load *load))
{
    load->group = group;
    if (group->kind && load_left_rows(load)) take(load); /* otherwise the first reading counted it */
}

/* Reads a chunk, and hands over its operators and its blocks, each unless there is no taker for it. Returns false if it
 * can't be read. */
static bool read_chunk(struct load *load, const struct chunk_in_file *piece, void (*take_ops)(struct load *load),
                       void (*take_blocks)(struct load *load))
{
    struct chunk chunk;
    load->piece = &load->trace->piece[piece->piece];
    if (!reader_again(&load->reader, load->piece, &chunk)) return false;
    load->ops = piece->op;
    for (unsigned g = 0; g < chunk.groups; g++) {
        if (chunk.group[g].number == TFI_KIND_op && take_ops) take_group(load, &chunk.group[g], take_ops);
        if (chunk.group[g].number == TFI_KIND_memory && take_blocks) take_group(load, &chunk.group[g], take_blocks);
    }
    return true;
}

/* ---- operators and blocks ---- */

static void read_part(struct load *load, const struct tables_in_file *u)
{
    void (*take_ops)(struct load * load) = load->needs.operators ? load_operators : NULL;
    void (*take_blocks)(struct load * load) = load->needs.memory ? load_blocks : NULL;
    for (size_t i = 0; i < u->count; i++)
        if (part_has(load->part, u->piece[i].first, u->piece[i].last) &&
            !read_chunk(load, &u->piece[i], take_ops, take_blocks))
            load->trace->unread += (take_ops ? ops_in_chunk(u, i) : 0) + (take_blocks ? blocks_in_chunk(u, i) : 0);
}

/* Keeps the links that make a pair: the last forward one and the first backward one of a key. */
static void take_link(struct arrows *arrows, const struct op_link *link, uint64_t end)
{
    uint32_t sequence = map_get(&arrows->sequences, (uint64_t)link->sequence);
    uint32_t at = sequence == MAP_NONE ? MAP_NONE : map_get(&arrows->of, (uint64_t)sequence << 32 | link->thread);
    if (at == MAP_NONE) return;
    struct arrow *arrow = &arrows->arrow[at];
    if (link->is_backward && (!arrow->has_backward || op_link_order(link, &arrow->backward) < 0)) {
        arrow->backward = *link;
        arrow->backward_end = end;
        arrow->has_backward = true;
    }
    if (!link->is_backward && (!arrow->has_forward || op_link_order(link, &arrow->forward) > 0)) {
        arrow->forward = *link;
        arrow->has_forward = true;
    }
}

static void take_links(struct load *load)
{
    const struct link_columns columns = load_link_columns(load);
    const uint64_t *duration = load_column(load, COL_op_duration);
    struct op_link link;
    for (uint32_t i = 0; i < load_rows(load); i++, load->ops++) {
        if (!load_link(load, &columns, i, &link)) continue;
        link.number = load->ops;
        take_link(load->part->arrows, &link, (uint64_t)load_end(columns.time[i], duration[i]));
    }
}

static void add_arrow(struct arrows *arrows, const struct op_link *link)
{
    uint32_t sequence = map_number(&arrows->sequences, (uint64_t)link->sequence);
    uint32_t at = map_number(&arrows->of, (uint64_t)sequence << 32 | link->thread);
    if (at < arrows->count) return;
    arrows->arrow = mem_grow(arrows->arrow, &arrows->capacity, arrows->count + 1, sizeof *arrows->arrow);
    arrows->arrow[arrows->count++] = (struct arrow){0};
}

/* Finds the other ends of all arrows, which may lie at any time. */
static void find_ends(struct load *load, const struct tables_in_file *u)
{
    for (size_t i = 0; i < u->count && load->part->arrows->count; i++) read_chunk(load, &u->piece[i], take_links, NULL);
}

static void read_links(struct load *load, const struct tables_in_file *u)
{
    const struct arrows *arrows = load->part->arrows;
    for (size_t i = 0; i < load->links; i++) add_arrow(load->part->arrows, &load->link[i]);
    find_ends(load, u);
    load->links = 0;
    for (size_t i = 0; i < arrows->count; i++) {
        if (!arrows->arrow[i].has_forward || !arrows->arrow[i].has_backward) continue;
        keep_link(load, &arrows->arrow[i].forward);
        keep_link(load, &arrows->arrow[i].backward);
    }
    load_operators_end(load);
}

/* ---- backward operators of other times ---- */

static void begin_arrows(struct load *load)
{
    const struct link_columns columns = load_link_columns(load);
    struct op_link link;
    for (uint32_t i = 0; i < load_rows(load); i++)
        if (load_link(load, &columns, i, &link) && part_has(load->part, columns.time[i], columns.time[i]))
            add_arrow(load->part->arrows, &link);
}

/* Adds the times of backward operators whose forward ones begin in the part. */
static void add_backward(struct load *load, const struct tables_in_file *u)
{
    struct part *part = load->part;
    const struct arrows *arrows = part->arrows;
    struct intervals behind = {0};
    for (size_t i = 0; i < u->count; i++)
        if (part_has(part, u->piece[i].first, u->piece[i].last)) read_chunk(load, &u->piece[i], begin_arrows, NULL);
    find_ends(load, u);
    for (size_t i = 0; i < arrows->count; i++) {
        const struct arrow *arrow = &arrows->arrow[i];
        if (!arrow->has_forward || !arrow->has_backward) continue;
        int64_t end = part_ns(part, arrow->backward_end);
        intervals_add_merging(&behind, part_ns(part, (uint64_t)arrow->backward.time), add_ns(end, 1));
    }
    intervals_merge(&behind);
    struct intervals both = intervals_union(&part->when, &behind);
    intervals_free(&part->when);
    intervals_free(&behind);
    part->when = both;
}

/* Converts what was loaded now. All other times of the process are nanoseconds already. */
static void convert(struct part *part, struct process *process)
{
    struct spans *s = &process->spans;
    struct forwards *f = &process->forwards;
    for (size_t i = 0; i < s->table.count; i++) {
        s->start[i] = part_ns(part, (uint64_t)s->start[i]);
        s->end[i] = part_ns(part, (uint64_t)s->end[i]);
    }
    for (size_t i = 0; i < process->blocks.table.count; i++)
        process->blocks.time[i] = part_ns(part, (uint64_t)process->blocks.time[i]);
    for (size_t i = 0; i < f->table.count; i++) f->time[i] = part_ns(part, (uint64_t)f->time[i]);
}

void load_windows(struct process *process, struct names *names, const struct intervals *when, bool by_stage,
                  struct notes *notes)
{
    struct tables_in_file *u = &process->in_file;
    struct arrows arrows = {0};
    struct part part = {
        .when = intervals_union(when, &(struct intervals){0}), .clock = process->clock, .arrows = &arrows};
    struct load load = {.trace = u->trace, .names = names, .process = process, .needs = u->needs, .part = &part};
    load.needs.stream = STREAM_HELD;
    load.reader.trace = u->trace;
    load.reader.decoder.skips_order = true;
    if (by_stage) add_backward(&load, u);
    read_part(&load, u);
    read_links(&load, u);
    convert(&part, process);
    if (load.bad_stacks) notes_add(notes, LOSS, BAD_STACKS, (unsigned long long)load.bad_stacks);
    load_free(&load);
    intervals_free(&part.when);
    map_free(&arrows.sequences);
    map_free(&arrows.of);
    free(arrows.arrow);
    free(u->piece);
    *u = (struct tables_in_file){0};
}
