/* tree_of_two.c - prints the places at which two runs differ, each once, or that nothing but noise differs. */
#include "commands/changes/tree_of_two.h"

#include <stdlib.h>

#include "ask/diff/tree_changes.h"
#include "commands/changes/sides.h"

static const char tree_keys[] = "name,kind,calls_a,calls_b,total_a_us,total_b_us,change_us,change_pct,state,what";

struct trees {
    struct session *session;
    struct session of[SIDES];
    struct names names;
    struct tree tree;
    struct tree_changes changes;
    bool unknown; /* a run lacks work or operators */
};

/* The state of a row; times within the tolerance of `diff` are the same. */
static enum diff_state state_of(const struct tree_change *change)
{
    struct diff_row row = {.in = {change->in[SIDE_A], change->in[SIDE_B]},
                           .time = {change->time[SIDE_A], change->time[SIDE_B]}};
    return diff_state(&row);
}

static void emit_times(struct emit *e, const int64_t time[SIDES])
{
    emit_us(e, "total_a_us", time[SIDE_A]);
    emit_us(e, "total_b_us", time[SIDE_B]);
    emit_us(e, "change_us", add_ns(time[SIDE_B], -time[SIDE_A]));
    emit_pct(e, "change_pct", diff_pct(time[SIDE_A], time[SIDE_B]));
}

static void emit_change(struct trees *t, const struct tree_change *change)
{
    struct emit *e = &t->session->emit;
    struct diff_row row = {.kind = t->tree.node[change->node].kind};
    struct text path = {0};
    tree_path(&path, &t->tree, change->node, &t->names);
    emit_row(e);
    emit_text(e, "name", path.data);
    emit_text(e, "kind", diff_kind_name(&row));
    for (int side = 0; side < SIDES; side++) {
        static const char *const keys[SIDES] = {"calls_a", "calls_b"};
        if (change->node == TREE_ROOT) emit_null(e, keys[side]);
        else emit_count(e, keys[side], change->calls[side]);
    }
    emit_times(e, change->time);
    emit_text(e, "state", diff_state_names[state_of(change)]);
    emit_text(e, "what", change->what);
    emit_row_end(e);
    text_free(&path);
}

static void print_trees(struct trees *t)
{
    struct session *session = t->session;
    const struct tree_changes *changes = &t->changes;
    struct emit *e = &session->emit;
    uint64_t top = session->options.top;
    size_t states[NR_DIFF_STATES] = {0};
    if (!session_begin(session, STYLE_TABLE)) return;
    for (int side = 0; side < SIDES; side++) session_name_inputs(session, &t->of[side]);
    emit_keys(e, tree_keys);
    for (size_t i = 0; i < changes->count; i++) {
        if (!top || i < top) emit_change(t, &changes->change[i]);
        states[state_of(&changes->change[i])]++;
    }
    emit_totals(e);
    emit_hide(e, t->unknown);
    emit_times(e, changes->total);
    emit_pct(e, "noise_pct", changes->noise);
    emit_hide(e, false);
    for (int i = 0; i < NR_DIFF_STATES; i++) emit_count(e, diff_state_names[i], states[i]);
    emit_end(e);
    bool found = t->tree.count > 1 || !is_filtered(&session->options);
    session_end(session, found);
    if (!found) return;
    if (t->unknown)
        complain(NULL,
                 "records of a run are missing; `tfanalyze info` shows which: what they had may seem to have changed");
    if (t->tree.count == 1)
        complain(NULL, "neither run has stages, operators or device work; `tfanalyze info` shows what they have");
    else if (!changes->count)
        complain(NULL,
                 "nothing but noise: both runs have the same stages, operators and device work at the same places, and "
                 "no time of %s differs by more than noise of %.1f %% between runs explains%s",
                 t->tree.has_work ? "devices" : "the host", changes->noise,
                 t->tree.has_work ? "; --by stage and --by finding compare what the host does" : "");
}

static void unite_side(struct trees *t, int side, const struct diff_ranks *ranks)
{
    const struct selection *chosen = &t->of[side].chosen;
    void *const *taken = session_summaries(&t->of[side]);
    for (size_t i = 0; i < chosen->processes; i++) {
        const struct diff_taken *of = taken[i];
        if (!diff_ranks_has(ranks, side, chosen->process[i]->rank)) continue;
        tree_unite(&t->tree, side, of->tree, &chosen->model->names, &t->names);
        t->unknown |= of->unknown;
    }
}

void tree_of_two(struct session *session)
{
    struct trees *t = mem_zero(1, sizeof *t);
    t->session = session;
    names_init(&t->names);
    tree_init(&t->tree);
    if (side_load(session, &t->of[SIDE_A], SIDE_A, NULL) && side_load(session, &t->of[SIDE_B], SIDE_B, NULL)) {
        struct diff_ranks ranks;
        bool good = sides_ranks(&ranks, t->of);
        for (int side = 0; side < SIDES && good; side++) unite_side(t, side, &ranks);
        diff_ranks_free(&ranks);
        if (good) {
            tree_compare(&t->changes, &t->tree, &t->names);
            print_trees(t);
        } else {
            session->status = STATUS_NOTHING;
        }
    }
    tree_changes_free(&t->changes);
    tree_free(&t->tree);
    names_free(&t->names);
    for (int side = 0; side < SIDES; side++) session_free(&t->of[side]);
    free(t);
}
