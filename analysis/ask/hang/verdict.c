/* verdict.c - says in sentences what is unmatched, where the missing ranks are, and what the traces cannot tell. */
#include "ask/hang/verdict.h"

#include <stdlib.h>
#include <string.h>

#include "ask/ranks/absent_ranks.h"
#include "ask/hang/thread_position.h"
#include "base/escape.h"
#include "write/emit.h"

enum { SHOWN_RANKS = 8, SHOWN_UNMATCHED = 16, SOON = 1000000000 /* nanoseconds */ };

/* ---- lines ---- */

/* Moves a text to the lines. */
static void add_line(struct hang_lines *lines, struct text *text)
{
    lines->line = mem_grow(lines->line, &lines->capacity, lines->count + 1, sizeof *lines->line);
    lines->line[lines->count++] = text->data ? text->data : mem_text("", 0);
    *text = (struct text){0};
}

void hang_lines_free(struct hang_lines *lines)
{
    for (size_t i = 0; i < lines->count; i++) free(lines->line[i]);
    free(lines->line);
    *lines = (struct hang_lines){0};
}

static void add_name(struct text *text, const struct hang *hang, uint32_t number)
{
    const struct name *name = names_get(hang->job.summary.names, number);
    text_visible(text, name->text, name->length);
}

/* Appends "rank 3" or "ranks 0-2, 5"; the ranks of a collective are sorted. `wanted` chooses them. */
static size_t add_ranks(struct text *text, const struct hang_unmatched *u, bool (*wanted)(const struct hang_rank *rank))
{
    struct text list = {0};
    size_t count = 0;
    for (size_t i = 0; i < u->ranks; i++) {
        if (!wanted(&u->rank[i]) || u->rank[i].rank < 0) continue;
        size_t last = i;
        while (last + 1 < u->ranks && wanted(&u->rank[last + 1]) && u->rank[last + 1].rank == u->rank[last].rank + 1)
            last++;
        text_format(&list, count ? ", %lld" : "%lld", (long long)u->rank[i].rank);
        if (last > i) text_format(&list, last > i + 1 ? "-%lld" : ", %lld", (long long)u->rank[last].rank);
        count += last - i + 1;
        i = last;
    }
    if (count) text_format(text, count == 1 ? "rank %s" : "ranks %s", list.data);
    text_free(&list);
    return count;
}

static bool has_waited(const struct hang_rank *r)
{
    return r->role == HANG_WAITS;
}

static bool is_gone(const struct hang_rank *r)
{
    return r->role == HANG_GONE;
}

static bool has_left(const struct hang_rank *r)
{
    return r->role == HANG_LEFT;
}

static bool is_held(const struct hang_rank *r)
{
    return r->role == HANG_HELD;
}

static bool is_agreeing(const struct hang_rank *r)
{
    return r->part && r->differs == DIFFERS_NOT;
}

static bool is_early(const struct hang_rank *r)
{
    return r->role == HANG_EARLY;
}

static bool is_partial(const struct hang_rank *r)
{
    return r->role == HANG_PARTIAL;
}

static bool is_absent(const struct hang_rank *r)
{
    return r->role == HANG_ABSENT;
}

static size_t count_ranks(const struct hang_unmatched *u, bool (*wanted)(const struct hang_rank *rank))
{
    size_t count = 0;
    for (size_t i = 0; i < u->ranks; i++) count += wanted(&u->rank[i]);
    return count;
}

/* ---- one collective ---- */

static void add_operation(struct text *text, const struct hang *hang, const struct comm_part *part)
{
    text_puts(text, collective_kinds[part->op].name);
    uint64_t count = part->elements_in != UNKNOWN_COUNT ? part->elements_in : part->elements_out;
    if (count != UNKNOWN_COUNT) text_format(text, " of %llu", (unsigned long long)count);
    if (part->datatype != NAME_NONE) {
        text_puts(text, " ");
        add_name(text, hang, part->datatype);
    }
}

void hang_difference(const struct hang *hang, const struct hang_unmatched *u, const struct hang_rank *r,
                     struct text *text)
{
    const struct comm_part *own = r->part, *other = u->part;
    switch (r->differs) {
    case DIFFERS_ORDER:
    case DIFFERS_OPERATION:
        text_format(text, "%s: %s, not %s", r->differs == DIFFERS_ORDER ? "order" : "operation",
                    collective_kinds[own->op].name, collective_kinds[other->op].name);
        break;
    case DIFFERS_ROOT: text_format(text, "root: %lld, not %lld", (long long)own->root, (long long)other->root); break;
    case DIFFERS_COUNT:
        text_format(text, "count: %llu, not %llu", (unsigned long long)own->elements_in,
                    (unsigned long long)other->elements_in);
        break;
    case DIFFERS_DATATYPE:
        text_puts(text, "datatype: ");
        add_name(text, hang, own->datatype);
        text_puts(text, ", not ");
        add_name(text, hang, other->datatype);
        break;
    default: break;
    }
}

static bool is_any_running(const struct hang *hang)
{
    for (size_t i = 0; i < hang->chosen->processes; i++)
        if (hang->chosen->process[i]->life == LIFE_RUNNING) return true;
    return false;
}

static void say_head(const struct hang *hang, const struct hang_unmatched *u, struct hang_lines *lines)
{
    struct text line = {0};
    text_puts(&line, u->is_first ? "" : "held up: ");
    add_operation(&line, hang, u->part);
    if (u->is_message && u->part->alone)
        text_format(&line, ", message %lld of its kind on rank %lld; the trace does not say with which rank",
                    (long long)u->part->sequence, (long long)u->part->rank);
    else if (u->is_message)
        text_format(&line, ", message %lld from rank %lld to rank %lld", (long long)u->part->sequence,
                    (long long)u->part->source, (long long)u->part->peer);
    else text_format(&line, ", number %lld", (long long)u->part->sequence);
    text_puts(&line, " of group ");
    add_name(&line, hang, u->part->group);
    text_puts(&line, u->all_came   ? ": all ranks came, and it has not ended"
                     : u->differs  ? ": the ranks called different things"
                     : u->is_first ? ": ranks are missing"
                                   : ": its missing ranks wait in other collectives");
    if (u->since != UNKNOWN_TIME) {
        text_puts(&line, "; the first rank came ");
        human_time(&line, u->waited);
        text_puts(&line, is_any_running(hang) ? " ago" : " before the traces end");
        text_puts(&line, u->waited < SOON && is_any_running(hang) ? ", which is normal for a job that goes on" : "");
    }
    add_line(lines, &line);
}

static void say_list(const struct hang_unmatched *u, const char *what, bool (*wanted)(const struct hang_rank *rank),
                     struct hang_lines *lines)
{
    struct text line = {0};
    if (!count_ranks(u, wanted)) return;
    text_format(&line, "  %s: ", what);
    size_t count = add_ranks(&line, u, wanted);
    if (count < count_ranks(u, wanted))
        text_puts(&line, count ? ", and one whose rank is not known" : "one whose rank is not known");
    add_line(lines, &line);
}

static void say_differing(const struct hang *hang, const struct hang_unmatched *u, struct hang_lines *lines)
{
    struct text line = {0};
    size_t shown = 0;
    text_puts(&line, "  ");
    add_ranks(&line, u, is_agreeing);
    text_puts(&line, ": ");
    add_operation(&line, hang, u->part);
    add_line(lines, &line);
    for (size_t i = 0; i < u->ranks && shown < SHOWN_RANKS; i++) {
        const struct hang_rank *r = &u->rank[i];
        if (r->differs == DIFFERS_NOT) continue;
        shown++;
        text_format(&line, "  rank %lld: ", (long long)r->rank);
        add_operation(&line, hang, r->part);
        text_puts(&line, " (");
        hang_difference(hang, u, r, &line);
        text_puts(&line, "); ");
        hang_where_text(hang, r->rank, &line);
        add_line(lines, &line);
    }
    if (u->has_majority) return;
    text_puts(&line, "  neither side has more ranks than the other: the traces cannot tell which one is wrong");
    add_line(lines, &line);
}

static bool is_missing(const struct hang_rank *r)
{
    return r->role == HANG_MISSING;
}

/* Says where each of the wanted ranks is. */
static void say_each(const struct hang *hang, const struct hang_unmatched *u, const char *what,
                     bool (*wanted)(const struct hang_rank *rank), struct hang_lines *lines)
{
    size_t shown = 0, all = count_ranks(u, wanted);
    struct text line = {0};
    for (size_t i = 0; i < u->ranks && shown < SHOWN_RANKS; i++) {
        const struct hang_rank *r = &u->rank[i];
        if (!wanted(r)) continue;
        shown++;
        if (r->rank < 0) text_format(&line, "  %s: number %lld of the group", what, (long long)r->number);
        else text_format(&line, "  %s: rank %lld; ", what, (long long)r->rank);
        if (r->rank >= 0) hang_where_text(hang, r->rank, &line);
        add_line(lines, &line);
    }
    if (all <= shown) return;
    text_format(&line, "  %s: %zu more ranks", what, all - shown);
    add_line(lines, &line);
}

static void say_unmatched(const struct hang *hang, const struct hang_unmatched *u, struct hang_lines *lines)
{
    say_head(hang, u, lines);
    if (u->differs) say_differing(hang, u, lines);
    else say_list(u, "waiting in it", has_waited, lines);
    say_list(u, "left it already", has_left, lines);
    say_each(hang, u, "never came", is_missing, lines);
    say_each(hang, u, "came, and is gone while others wait", is_gone, lines);
    say_list(u, "held up in another collective", is_held, lines);
    say_list(u, "not known, their traces lack records or are of several runs", is_partial, lines);
    say_list(u, "not known, their traces were read before the others came", is_early, lines);
    say_list(u, "not known, without a trace", is_absent, lines);
}

void hang_verdict(const struct hang *hang, struct hang_lines *lines)
{
    struct text line = {0};
    for (size_t i = 0; i < hang->count && i < SHOWN_UNMATCHED; i++) say_unmatched(hang, &hang->unmatched[i], lines);
    if (hang->count > SHOWN_UNMATCHED) {
        text_format(&line, "and %zu more collectives are unmatched", hang->count - SHOWN_UNMATCHED);
        add_line(lines, &line);
    }
    if (hang->count) return;
    size_t partial = 0;
    for (size_t i = 0; i < hang->chosen->processes; i++) partial += !hang->taken[i]->is_whole;
    if (hang->job.summary.count && partial)
        text_puts(&line, "no collective is known to be unmatched, but some traces are not whole");
    else if (hang->job.summary.count)
        text_puts(&line, "no collective is unmatched: the ranks of each group have called the same ones");
    else text_puts(&line, "the traces have no collectives");
    add_line(lines, &line);
}

/* ---- what cannot be known ---- */

static size_t say_ranks_without_trace(const struct hang *hang, struct hang_lines *lines)
{
    struct text line = {0};
    char *absent = hang->chosen->options->rank.count ? NULL : absent_ranks(hang->chosen, false);
    if (!absent) return 0;
    text_format(&line, "%s: it may have ended before its first recorded call", absent);
    free(absent);
    add_line(lines, &line);
    return 1;
}

struct counts {
    size_t selected, guessed, killed, bare, unknown_clocks, flights, pytorch, lossy;
};

static struct counts count_all(const struct hang *hang)
{
    struct counts c = {.unknown_clocks = hang->clock.unknown};
    for (size_t i = 0; i < hang->chosen->processes; i++) {
        const struct process *p = hang->chosen->process[i];
        c.selected += hang->taken[i]->is_partly_selected;
        bool is_flight = strcmp(p->kind, "flight") == 0;
        c.flights += is_flight;
        c.pytorch += is_of_kineto(p);
        c.guessed += !p->is_life_known && !is_flight && !is_of_kineto(p);
        c.lossy += !hang->taken[i]->is_whole && !hang->taken[i]->is_partly_selected && !is_of_kineto(p);
        c.killed += p->life == LIFE_DEAD && p->devices;
        c.bare += p->life != LIFE_ENDED && !p->read_at;
    }
    return c;
}

static size_t say_count(struct hang_lines *lines, size_t count, const char *what)
{
    struct text line = {0};
    if (!count) return 0;
    text_format(&line, "%zu process%s %s", count, count > 1 ? "es:" : ":", what);
    add_line(lines, &line);
    return 1;
}

size_t hang_unknowns(const struct hang *hang, struct hang_lines *lines)
{
    struct counts c = count_all(hang);
    size_t incomplete = say_ranks_without_trace(hang, lines);
    struct text line = {0};
    if (hang->job.runs > 1) {
        text_format(
            &line,
            "the traces are of %zu separate times or worlds: give those of one run, as no rank is named as missing",
            hang->job.runs);
        add_line(lines, &line);
        incomplete++;
    }
    incomplete += say_count(lines, c.selected,
                            "only some stages or times were recorded, so that a call that is not in the trace may have "
                            "been made");
    incomplete +=
        say_count(lines, c.lossy, "its trace lost records, so that a call that is not in it may have been made");
    incomplete += say_count(lines, c.unknown_clocks,
                            "no common clock with the others: times of different ranks cannot be compared");
    incomplete += say_count(lines, c.bare, "no slots, because the .live file is missing: open calls are not known");
    say_count(
        lines, c.flights,
        "a dump of PyTorch's flight recorder, which has collectives only: where a rank is that did not come is not "
        "in it");
    say_count(
        lines, c.pytorch,
        "a PyTorch trace, which is written at the end of profiling: it tells neither whether its process runs nor what "
        "its threads wait in. hang needs the traces of libtfinject.so, or the dumps of PyTorch's flight recorder");
    say_count(lines, c.guessed,
              "of another host or boot: it counts as running until its .live file is unchanged for 60 s, which that "
              "of a rank that waits is, too");
    say_count(lines, c.killed,
              "killed: the device's records of its last moments (TFI_FLUSH_MS) are lost, so that a collective that "
              "seems to be running may have ended");
    return incomplete;
}
