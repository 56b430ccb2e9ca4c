/* diff.c - reports what changed from one run to another, by kernel, operator or stage.
 *
 * Each run is loaded by a session of its own: it has its own names, and a file that both runs hold counts for both.
 */
#include "ask/diff/diff_rows.h"

#include <math.h>
#include <stdlib.h>

#include "ask/diff/timing_file.h"
#include "commands/changes/findings_of_two.h"
#include "commands/changes/gate_runs.h"
#include "commands/changes/sides.h"
#include "commands/changes/tree_of_two.h"
#include "commands/page/page.h"

struct sides {
    struct session *session;
    struct session side[SIDES]; /* not used for a timing.json */
    bool is_timing[SIDES], any_timing;
    struct diff diff;
};

/* ---- options ---- */

static const char *filter_without_meaning(const struct options *o)
{
    if (diff_by(o) == BY_KERNEL) return NULL;
    return o->device.count ? "--device" : o->stream.count ? "--stream" : NULL;
}

/* A timing.json has stages and their durations only. */
static const char *option_without_timing(const struct options *o)
{
    return o->by == BY_KERNEL || o->by == BY_OP ? "--by"
           : o->rank.count                      ? "--rank"
           : o->pid.count                       ? "--pid"
           : is_filtered(o)                     ? "a filter of events"
                                                : NULL;
}

/* True, after a message, with a filter that has no meaning for findings. */
static bool refuses_filters(const struct session *session)
{
    const struct options *o = &session->options;
    const char *option = o->device.count   ? "--device"
                         : o->stream.count ? "--stream"
                         : o->cycle.count  ? "--cycle"
                                           : NULL;
    if (option) complain(NULL, "%s has no meaning for findings, which judge all the time of a rank", option);
    return option != NULL;
}

/* True, after a message, with a timing.json. */
static bool refuses_timing(const struct session *session)
{
    const struct strings_list *both = &session->options.inputs;
    bool any = is_timing_file(both->text[SIDE_A]) || is_timing_file(both->text[SIDE_B]);
    if (any)
        complain(NULL, "--by %s has no meaning for a timing.json, which has durations of whole stages only",
                 session->options.by == BY_TREE ? "tree" : "finding");
    return any;
}

static bool refused(struct sides *s)
{
    struct options *o = &s->session->options;
    const char *filter = NULL, *why = NULL;
    if (o->by == BY_RUN && (filter = "--by run") != NULL)
        why = "needs --gate and several runs of each side; --by stage compares two";
    else if (s->any_timing && (filter = option_without_timing(o)) != NULL)
        why = "has no meaning for a timing.json, which has durations of whole stages only";
    else if (!s->any_timing && (filter = filter_without_meaning(o)) != NULL)
        why = "chooses device work; it needs --by kernel";
    if (why) {
        complain(NULL, "%s %s", filter, why);
        s->session->status = STATUS_USAGE;
    }
    return why != NULL;
}

/* ---- loading ---- */

/* Loads one run. Returns false, after a message, if it has nothing usable. */
static bool load_side(struct sides *s, int side)
{
    struct options *options = &s->session->options;
    char *input = options->inputs.text[side];
    if (s->any_timing) options->by = BY_STAGE;
    if (s->is_timing[side]) {
        if (timing_file_add(&s->diff, side, input)) return true;
        s->session->status = STATUS_NOTHING;
        return false;
    }
    return side_load(s->session, &s->side[side], side, NULL);
}

/* ---- collecting ---- */

static bool collect_common(struct sides *s)
{
    struct diff_ranks ranks;
    bool good = sides_ranks(&ranks, s->side);
    for (int side = 0; side < SIDES && good; side++)
        diff_collect(&s->diff, side, &s->side[side].chosen, session_summaries(&s->side[side]), &ranks);
    diff_ranks_free(&ranks);
    return good;
}

static bool collect(struct sides *s)
{
    bool good = true;
    if (s->any_timing) {
        for (int side = 0; side < SIDES; side++)
            if (!s->is_timing[side])
                diff_collect_timing(&s->diff, side, &s->side[side].chosen, session_summaries(&s->side[side]));
    } else {
        good = collect_common(s);
    }
    if (!good) s->session->status = STATUS_NOTHING;
    return good;
}

/* ---- printing ---- */

static void emit_calls(struct emit *e, const struct diff *diff, const struct diff_row *row)
{
    static const char *const keys[SIDES] = {"calls_a", "calls_b"};
    for (int side = 0; side < SIDES; side++)
        if (row->calls[side] == CALLS_UNKNOWN || diff->unknown[side]) emit_null(e, keys[side]);
        else emit_count(e, keys[side], row->calls[side]);
}

static void emit_change(struct emit *e, const struct diff *diff, int64_t a, int64_t b)
{
    emit_hide(e, diff->unknown[SIDE_A]);
    emit_us(e, "total_a_us", a);
    emit_hide(e, diff->unknown[SIDE_B]);
    emit_us(e, "total_b_us", b);
    emit_hide(e, diff->unknown[SIDE_A] || diff->unknown[SIDE_B]);
    emit_us(e, "change_us", add_ns(b, -a));
    emit_pct(e, "change_pct", diff_pct(a, b));
}

static void emit_diff_row(struct sides *s, const struct diff_row *row)
{
    struct emit *e = &s->session->emit;
    const struct name *name = names_get(&s->diff.names, row->name);
    emit_row(e);
    emit_bytes_text(e, "name", name->text, name->length);
    emit_text(e, "kind", diff_kind_name(row));
    emit_calls(e, &s->diff, row);
    emit_change(e, &s->diff, row->time[SIDE_A], row->time[SIDE_B]);
    emit_text(e, "state", e->hides ? NULL : diff_state_names[diff_state(row)]);
    emit_row_end(e);
}

static void emit_sums(struct sides *s)
{
    static const char *const keys[] = {"total_a_us", "total_b_us", "change_us", "change_pct"};
    const struct diff *diff = &s->diff;
    struct emit *e = &s->session->emit;
    size_t states[NR_DIFF_STATES] = {0};
    emit_totals(e);
    if (diff->has_total[SIDE_A] && diff->has_total[SIDE_B])
        emit_change(e, diff, diff->total[SIDE_A], diff->total[SIDE_B]);
    else
        for (size_t i = 0; i < ARRAY_SIZE(keys); i++) emit_null(e, keys[i]);
    for (size_t i = 0; i < diff->count; i++) states[diff_state(&diff->row[i])]++;
    for (int i = 0; i < NR_DIFF_STATES; i++) emit_count(e, diff_state_names[i], states[i]);
    emit_end(e);
}

static void print(struct sides *s)
{
    struct session *session = s->session;
    uint64_t top = session->options.top;
    if (!session_begin(session, STYLE_TABLE)) return;
    for (int side = 0; side < SIDES; side++)
        if (s->is_timing[side])
            emit_input(&session->emit, session->options.inputs.text[side], "timing", -1, true, -1, -1, false);
        else session_name_inputs(session, &s->side[side]);
    diff_sort(&s->diff);
    for (size_t i = 0; i < s->diff.count && (!top || i < top); i++) emit_diff_row(s, &s->diff.row[i]);
    emit_sums(s);
    bool found = s->diff.count || !is_filtered(&session->options);
    if (!s->diff.count && found && diff_by(&session->options) == BY_KERNEL)
        complain(NULL, "neither run has device work; --by op compares their operators, --by stage their stages");
    else if (!s->diff.count && found)
        complain(NULL, "neither run has anything to compare; `tfanalyze info` shows what they have");
    session_end(session, found);
}

void cmd_diff(struct session *session)
{
    if (session->options.gpu && session->options.by != BY_FINDING && !session->options.html) {
        complain(NULL, "--gpu has a meaning for findings: it needs --by finding or --html");
        session->status = STATUS_USAGE;
        return;
    }
    if (session->options.html) {
        page_of_two(session);
        return;
    }
    if (!isnan(session->options.gate)) {
        gate_runs(session);
        return;
    }
    if (session->options.by == BY_FINDING || session->options.by == BY_TREE) {
        bool tree = session->options.by == BY_TREE;
        if (refuses_timing(session) || (!tree && refuses_filters(session))) session->status = STATUS_USAGE;
        else if (tree) tree_of_two(session);
        else findings_of_two(session);
        return;
    }
    struct sides *s = mem_zero(1, sizeof *s);
    s->session = session;
    diff_init(&s->diff);
    for (int side = 0; side < SIDES; side++) {
        s->is_timing[side] = is_timing_file(session->options.inputs.text[side]);
        s->any_timing |= s->is_timing[side];
    }
    if (!refused(s) && load_side(s, SIDE_A) && load_side(s, SIDE_B) && collect(s)) print(s);
    for (int side = 0; side < SIDES; side++) session_free(&s->side[side]);
    diff_free(&s->diff);
    free(s);
}
