/* thread_position.c - finds where a thread is, from its slot, its collectives, its Python frames and its last record. */
#include "ask/hang/thread_position.h"

#include <stdlib.h>
#include <string.h>

#include "base/escape.h"
#include "model/frames.h"
#include "write/emit.h"

/* ---- the collective of a thread ---- */

void hang_where_init(struct hang *hang)
{
    for (size_t i = 0; i < hang->count; i++) {
        for (size_t k = 0; k < hang->unmatched[i].ranks; k++) {
            const struct hang_rank *r = &hang->unmatched[i].rank[k];
            if (r->part) map_put(&hang->unmatched_of, hang_call_key(r->rank, r->part->call_start), (uint32_t)i);
        }
    }
}

static void find_part(const struct hang *hang, struct hang_where *w, int64_t rank, const struct hang_thread *t)
{
    w->part = hang_last_part(hang, rank, t);
    uint32_t at = w->part ? map_get(&hang->unmatched_of, hang_call_key(rank, t->entered)) : MAP_NONE;
    if (at != MAP_NONE) w->unmatched = &hang->unmatched[at];
}

/* ---- a thread ---- */

static const char *process_of(const struct hang *hang, size_t place)
{
    const struct process *p = hang->chosen->process[place];
    if (is_of_kineto(p)) return "unknown";
    if (hang->taken[place]->has_aborted) return "aborted";
    switch (p->life) {
    case LIFE_ENDED: return "ended";
    case LIFE_RUNNING: return p->is_life_known ? "running" : "unknown";
    default: return p->is_life_known ? "killed" : "unknown";
    }
}

struct hang_where hang_where(const struct hang *hang, size_t place, const struct hang_thread *t)
{
    const struct process *p = hang->chosen->process[place];
    struct hang_where w = {
        .process = process_of(hang, place), .stack = t->stack, .stage = t->open.stage, .since = t->last};
    uint32_t calls = t->has_slot ? MIN(t->open.calls, (uint32_t)TFI_SLOT_CALLS) : 0;
    bool in_collective = t->open.collective_start != UNKNOWN_TIME;
    find_part(hang, &w, p->rank, t);
    w.state = "silent";
    if (t->silent_since != UNKNOWN_TIME) w.since = t->silent_since;
    if (t->stack != NAME_NONE) w.state = "in Python";
    else if (t->open.stage_start != UNKNOWN_TIME) w.state = "in stage";
    if (t->stack == NAME_NONE && t->open.stage_start != UNKNOWN_TIME && t->last == UNKNOWN_TIME)
        w.since = t->open.stage_start;
    if (calls) {
        w.state = in_collective ? "in collective" : "in call";
        w.call = t->open.call[calls - 1].name;
        w.since = in_collective ? t->open.collective_start : t->open.call[calls - 1].start;
    } else if (w.unmatched && hang_is_inside(t)) {
        w.state = "in collective";
        w.since = t->entered;
    }
    if (p->life == LIFE_ENDED && !is_of_kineto(p)) w.state = "ended";
    if (t->raised != UNKNOWN_TIME) {
        w.state = "left by exception";
        w.exception = t->exception;
        w.since = t->raised;
    }
    w.since = hang_moment(hang, place, w.since);
    return w;
}

/* ---- for people ---- */

size_t hang_user_frame(const struct names *names, uint32_t stack)
{
    for (size_t i = 0; i < stack_depth(names, stack); i++) {
        const struct name *name = names_get(names, stack_frame(names, stack, i));
        if (!memmem(name->text, name->length, "/torch/", 7)) return i;
    }
    return 0;
}

void hang_frame_text(const struct names *names, uint32_t stack, size_t frame, struct text *text)
{
    const struct name *name = names_get(names, stack_frame(names, stack, frame));
    struct frame parsed;
    if (!frame_parse(&parsed, name->text, name->length)) {
        text_visible(text, name->text, name->length);
        return;
    }
    text_visible(text, parsed.function, parsed.function_length);
    text_puts(text, " ");
    text_visible(text, parsed.file, parsed.file_length);
    text_puts(text, ":");
    text_visible(text, parsed.line, strlen(parsed.line));
}

static void add_name(struct text *text, const struct hang *hang, const char *before, uint32_t number)
{
    const struct name *name = names_get(hang->job.summary.names, number);
    text_puts(text, before);
    text_visible(text, name->text, name->length);
}

void hang_where_text(const struct hang *hang, int64_t rank, struct text *text)
{
    size_t place = hang_place(hang, rank);
    const struct hang_taken *taken = place == SIZE_MAX ? NULL : hang->taken[place];
    const struct hang_thread *t = taken ? hang_main_thread(taken) : NULL;
    if (!taken) {
        text_puts(text, "it has no trace");
        return;
    }
    if (!t) {
        text_puts(text, process_of(hang, place));
        return;
    }
    struct hang_where w = hang_where(hang, place, t);
    text_puts(text, strcmp(w.process, "ended") == 0 ? "its process has ended" : w.process);
    if (strcmp(w.process, "ended") == 0 && taken->ended && strcmp(taken->ended, "exit") != 0) {
        text_puts(text, " by ");
        text_visible(text, taken->ended, strlen(taken->ended));
    }
    if (t->raised != UNKNOWN_TIME) add_name(text, hang, ", left by the exception ", w.exception);
    if (w.call != NAME_NONE) add_name(text, hang, ", in ", w.call);
    if (w.stack != NAME_NONE) {
        text_puts(text, ", in Python ");
        hang_frame_text(hang->job.summary.names, w.stack, hang_user_frame(hang->job.summary.names, w.stack), text);
    }
    if (w.stage != NAME_NONE) add_name(text, hang, ", in stage ", w.stage);
    if (w.since == UNKNOWN_TIME || hang->end == UNKNOWN_TIME || t->raised != UNKNOWN_TIME) return;
    text_puts(text, w.call != NAME_NONE || w.part ? ", for " : ", without a record for ");
    human_time(text, MAX(add_ns(hang->end, -w.since), 0));
}
