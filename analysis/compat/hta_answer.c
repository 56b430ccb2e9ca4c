/* hta_answer.c - answers timeline, kinds, overlap and breakdown with --rules hta, in HTA's words, keys and rounding. */
#include "compat/hta_answer.h"

#include <math.h>
#include <stdlib.h>

#include "commands/device/answers.h"
#include "ask/scope.h"
#include "compat/hta.h"

/* Refuses the filters without a meaning here. A filter can only choose rows of HTA's table: cutting rows and choosing
 * by stage have no counterpart in HTA. */
static bool refused(struct session *session)
{
    const struct options *o = &session->options;
    const char *option = o->step.count                 ? "--step"
                         : o->cycle.count              ? "--cycle"
                         : o->stage.count              ? "--stage"
                         : !isnan(o->from)             ? "--from"
                         : !isnan(o->to)               ? "--to"
                         : o->group_by != GROUP_KERNEL ? "--group-by"
                                                       : NULL;
    if (option) {
        complain(NULL, "%s and --rules hta exclude each other: HTA has no counterpart of it", option);
        session->status = STATUS_USAGE;
    }
    return option != NULL;
}

struct needs hta_needs(const struct options *options)
{
    return needs_union(
        work_needs(options),
        (struct needs){.event_numbers = true, .copied = true, .counters = true, .stages_of_spans = true});
}

bool hta_load(struct session *session)
{
    return !refused(session) && session_load(session);
}

bool hta_begin(struct session *session)
{
    struct left_rows left = {0};
    if (!hta_load(session) || !session_begin(session, STYLE_TABLE)) return false;
    for (size_t i = 0; i < session->chosen.processes; i++) {
        struct scope *scope = scope_begin(&session->chosen, i);
        scope_left_rows(scope, &left);
        scope_end(scope);
    }
    if (left.any) emit_hide_all(&session->emit);
    left_rows_free(&left);
    return true;
}

/* Ends an answer whose totals have begun: prints the counts, reports ranks without values, sets the exit status. */
static void end_answer(const struct hta_frames *frames, struct session *session)
{
    size_t without = 0;
    for (size_t i = 0; i < frames->count; i++) without += frames->frame[i].count == 0;
    emit_count(&session->emit, "ranks", frames->count);
    emit_count(&session->emit, "works", frames->rows);
    emit_end(&session->emit);
    if (without && (frames->rows || !is_filtered(&session->options))) {
        complain(NULL, "HTA finds no device work in %zu of %zu ranks; --rules exact counts all device work", without,
                 frames->count);
    }
    session_end(session, frames->rows || !is_filtered(&session->options));
}

/* ---- timeline ---- */

static void emit_share(struct emit *e, const struct hta_temporal *t, const char *us, const char *pct, int64_t time)
{
    if (t->known) emit_us(e, us, time);
    else emit_null(e, us);
    emit_pct(e, pct, t->known ? hta_round(100 * ((double)time / (double)t->total), 2) : NAN);
}

void hta_timeline(struct session *session)
{
    struct emit *e = &session->emit;
    if (!hta_begin(session)) return;
    emit_keys(e, "rank,idle_us,idle_pct,compute_us,compute_pct,non_compute_us,non_compute_pct,kernel_time_us");
    const struct hta_frames *frames = hta_frames(&session->chosen);
    for (size_t i = 0; i < frames->count; i++) {
        const struct hta_frame *frame = &frames->frame[i];
        struct hta_temporal t = hta_temporal(frame);
        if (frame->count && !t.known) {
            complain(frame->path, "HTA's rules give no values: its rounded times leave %lld us for other work",
                     (long long)(t.other / 1000));
        }
        emit_row(e);
        emit_known(e, "rank", frame->rank);
        emit_share(e, &t, "idle_us", "idle_pct", t.idle);
        emit_share(e, &t, "compute_us", "compute_pct", t.compute);
        emit_share(e, &t, "non_compute_us", "non_compute_pct", t.other);
        if (t.known) emit_us(e, "kernel_time_us", t.total);
        else emit_null(e, "kernel_time_us");
        emit_row_end(e);
    }
    emit_totals(e);
    end_answer(frames, session);
}

/* ---- overlap ---- */

static double share_of(int64_t time, int64_t whole)
{
    return whole ? hta_round(100 * ((double)time / (double)whole), 2) : NAN;
}

void hta_overlap(struct session *session)
{
    struct emit *e = &session->emit;
    if (!hta_begin(session)) return;
    const struct hta_frames *frames = hta_frames(&session->chosen);
    for (size_t i = 0; i < frames->count; i++) {
        const struct hta_frame *frame = &frames->frame[i];
        struct hta_overlap overlap = hta_overlap_of(frame);
        emit_row(e);
        emit_known(e, "rank", frame->rank);
        if (frame->count) {
            emit_us(e, "overlap_us", overlap.time);
            emit_us(e, "communication_us", overlap.communication);
        } else {
            emit_null(e, "overlap_us");
            emit_null(e, "communication_us");
        }
        emit_pct(e, "overlap_pct", share_of(overlap.time, overlap.communication));
        emit_row_end(e);
    }
    emit_totals(e);
    end_answer(frames, session);
}

/* ---- breakdown ---- */

static void emit_kernel(struct session *session, int64_t rank, const struct hta_kernel *k, __int128 all,
                        const struct short_names *shorts)
{
    const struct name *name = names_get(&session->model.names, short_names_get(shorts, k->name));
    struct emit *e = &session->emit;
    emit_row(e);
    emit_text(e, "stage", model_name(&session->model, NAME_RUN));
    emit_known(e, "rank", rank);
    emit_bytes_text(e, "name", name->text, name->length);
    emit_text(e, "kind", work_kind_names[k->kind]);
    emit_count(e, "calls", k->calls);
    emit_us(e, "total_us", hta_fitting(k->sum));
    emit_us(e, "mean_us", llround((double)k->sum / (double)k->calls));
    emit_null(e, "median_us");
    emit_null(e, "p95_us");
    emit_us(e, "min_us", k->min);
    emit_us(e, "max_us", k->max);
    /* fillna({"std": 0}) */
    emit_us(e, "std_us", k->calls > 1 ? llround(sqrt(k->squares / (double)(k->calls - 1))) : 0);
    emit_pct(e, "pct", all ? 100.0 * (double)k->sum / (double)all : NAN);
    emit_row_end(e);
}

static struct short_names short_names_of(struct session *session, const struct hta_frames *frames)
{
    struct short_names shorts = {0};
    uint32_t *name = NULL;
    size_t count = 0, capacity = 0;
    for (size_t i = 0; i < frames->count && session->options.names == NAMES_SHORT; i++) {
        for (size_t k = 0; k < frames->frame[i].count; k++) {
            name = mem_grow(name, &capacity, count + 1, sizeof *name);
            name[count++] = frames->frame[i].row[k].name;
        }
    }
    short_names_init(&shorts, &session->model.names, name, count);
    free(name);
    return shorts;
}

/* Returns the time of all kernels. */
static __int128 emit_kernels(struct session *session, const struct hta_frame *frame, const struct short_names *shorts,
                             size_t *rows)
{
    struct hta_kernels kernels;
    uint64_t top = session->options.top;
    hta_kernels(&kernels, frame, &session->model);
    for (size_t i = 0; i < kernels.count && (!top || i < top); i++)
        emit_kernel(session, frame->rank, &kernels.kernel[i], kernels.sum, shorts);
    *rows += kernels.count;
    hta_kernels_free(&kernels);
    return kernels.sum;
}

/* Has no row "others" as HTA does: --top N leaves the remaining kernels out instead. */
void hta_breakdown(struct session *session)
{
    struct emit *e = &session->emit;
    __int128 all = 0;
    size_t kernels = 0;
    if (!hta_begin(session)) return;
    const struct hta_frames *frames = hta_frames(&session->chosen);
    struct short_names shorts = short_names_of(session, frames);
    for (size_t i = 0; i < frames->count; i++) all += emit_kernels(session, &frames->frame[i], &shorts, &kernels);
    short_names_free(&shorts);
    emit_totals(e);
    emit_us(e, "total_kernel_time_us", hta_fitting(all));
    emit_count(e, "num_kernels", kernels);
    end_answer(frames, session);
}

/* ---- kinds ---- */

static double rounded(double share)
{
    return hta_round(share, 1);
}

void hta_kinds(struct session *session)
{
    int64_t total[INTERVALS_COMBINATIONS] = {0};
    struct timeline timeline = {.ns = 1};
    if (!hta_begin(session)) return;
    timeline.works = hta_kinds_of(&session->chosen, total);
    kinds_answer(session, &timeline, total, rounded);
}
