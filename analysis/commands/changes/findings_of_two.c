/* findings_of_two.c - compares the findings of `advise` in two runs: gone, new, or still there, and what came of the gain.
 *
 * A finding is the same in both runs if its rule, its stage, its rank and, of a line of Python, its function are. The
 * predicted gain is its headroom in A. The measured gain is what the leaves of the budget, out of which that headroom was
 * taken, have lost on the rank that gains; other changes of the same leaves are in it too.
 */
#include "commands/changes/findings_of_two.h"

#include <stdlib.h>
#include <string.h>

#include "advise/findings.h"
#include "base/command.h"
#include "commands/changes/sides.h"

static const char finding_keys[] = "state,id,rank,stage,predicted_us,measured_us,headroom_b_us,leaves,finding";

enum finding_state { FINDING_GONE, FINDING_NEW, FINDING_STAYS, NR_FINDING_STATES };
static const char *const finding_state_names[NR_FINDING_STATES] = {"gone", "new", "stays"};

struct judged_side {
    const struct walls *walls;
    struct roofline roofline;
    struct advice advice;
};

struct two {
    struct session *session;
    struct session of[SIDES]; /* the runs */
    struct judged_side side[SIDES];
    struct diff_ranks ranks;
    size_t of_state[NR_FINDING_STATES];
};

/* ---- what belongs together ---- */

/* Returns the part of a rank that is judged; NULL: there is none. Runs of one rank each are compared whatever it is. */
static const struct wall_part *part_of_rank(const struct two *two, int side, int64_t rank)
{
    const struct walls *walls = two->side[side].walls;
    for (size_t i = 0; i < walls->count; i++)
        if (two->ranks.one_each || walls->wall[i].rank == rank) return wall_judged(&walls->wall[i]);
    return NULL;
}

static const char *stage_of(const struct two *two, int side, const struct finding *f)
{
    return f->stage == NAME_NONE ? "" : model_name(&two->of[side].model, f->stage);
}

/* Tells whether two findings of a rule are about the same function; those about operators are about none. */
static bool same_function(const struct finding *x, const struct finding *y)
{
    if (x->where != NAME_NONE || y->where != NAME_NONE || !x->function || !y->function) return true;
    return strcmp(x->function, y->function) == 0;
}

/* Returns the finding of the other side that is the same; NULL: there is none. */
static const struct finding *other_of(const struct two *two, int side, const struct finding *f)
{
    const struct advice *other = &two->side[1 - side].advice;
    for (size_t i = 0; i < other->findings; i++) {
        const struct finding *o = &other->finding[i];
        if (strcmp(o->id, f->id) == 0 && same_function(o, f) && (two->ranks.one_each || o->rank == f->rank) &&
            strcmp(stage_of(two, side, f), stage_of(two, 1 - side, o)) == 0)
            return o;
    }
    return NULL;
}

/* Tells whether the side has the same finding earlier: equal findings are one row. */
static bool is_second(const struct two *two, int side, size_t at)
{
    const struct finding *finding = two->side[side].advice.finding, *f = &finding[at];
    for (size_t i = 0; i < at; i++)
        if (strcmp(finding[i].id, f->id) == 0 && finding[i].rank == f->rank && finding[i].stage == f->stage &&
            same_function(&finding[i], f))
            return true;
    return false;
}

/* ---- printing ---- */

/* The time that the leaves of a finding lost from A to B. */
struct measured {
    bool known;
    int64_t gain;
    struct text leaves; /* their names, of those that have time */
};

static struct measured measure(const struct two *two, const struct finding *f)
{
    struct measured m = {0};
    const struct wall_part *a = part_of_rank(two, SIDE_A, f->gains), *b = part_of_rank(two, SIDE_B, f->gains);
    m.known = f->leaves && a && b && !a->unknown && !b->unknown;
    for (int leaf = 0; leaf < NR_LEAVES && m.known; leaf++) {
        if (!(f->leaves >> leaf & 1) || (!a->time[leaf] && !b->time[leaf])) continue;
        m.gain = add_ns(m.gain, a->time[leaf] - b->time[leaf]);
        text_format(&m.leaves, "%s%s", m.leaves.length ? ", " : "", leaf_rows[leaf].path[f->beside_device]);
    }
    return m;
}

/* Writes a row of a finding in A, in B or in both. */
static void emit_pair(struct two *two, const struct finding *before, const struct finding *after)
{
    struct emit *e = &two->session->emit;
    enum finding_state state = before && after ? FINDING_STAYS : before ? FINDING_GONE : FINDING_NEW;
    const struct finding *f = before ? before : after;
    const struct names *names = &two->of[before ? SIDE_A : SIDE_B].model.names;
    struct measured m = measure(two, f);
    two->of_state[state]++;
    emit_row(e);
    emit_text(e, "state", finding_state_names[state]);
    emit_text(e, "id", f->id);
    emit_known(e, "rank", f->rank);
    if (f->stage == NAME_NONE) emit_null(e, "stage");
    else emit_stage(e, names_get(names, f->stage));
    if (before && before->leaves) emit_us(e, "predicted_us", before->headroom);
    else emit_null(e, "predicted_us");
    if (before && m.known) emit_us(e, "measured_us", m.gain);
    else emit_null(e, "measured_us");
    if (after && after->leaves) emit_us(e, "headroom_b_us", after->headroom);
    else emit_null(e, "headroom_b_us");
    emit_text(e, "leaves", m.leaves.data);
    emit_text(e, "finding", (after ? after : before)->text);
    emit_row_end(e);
    text_free(&m.leaves);
}

/* Writes the rows of one state, in the order of the side that has them: the largest headroom first. */
static void emit_state(struct two *two, enum finding_state state, uint64_t *rows)
{
    int side = state == FINDING_NEW ? SIDE_B : SIDE_A;
    const struct advice *advice = &two->side[side].advice;
    uint64_t top = two->session->options.top;
    for (size_t i = 0; i < advice->findings; i++) {
        const struct finding *f = &advice->finding[i], *other = other_of(two, side, f);
        bool stays = state == FINDING_STAYS;
        if (!diff_ranks_has(&two->ranks, side, f->rank) || is_second(two, side, i) || (other != NULL) != stays)
            continue;
        if (top && *rows >= top) two->of_state[state]++;
        else emit_pair(two, side == SIDE_A ? f : NULL, side == SIDE_A ? other : f);
        ++*rows;
    }
}

/* Writes the time of all ranks that are compared. */
static void emit_walls(struct two *two)
{
    struct emit *e = &two->session->emit;
    int64_t total[SIDES] = {0};
    bool known = true;
    for (int side = 0; side < SIDES; side++) {
        const struct walls *walls = two->side[side].walls;
        for (size_t i = 0; i < walls->count; i++) {
            const struct wall_part *part = wall_judged(&walls->wall[i]);
            if (!diff_ranks_has(&two->ranks, side, walls->wall[i].rank)) continue;
            known &= part && !part->unknown;
            total[side] = add_ns(total[side], part ? part->total : 0);
        }
    }
    emit_hide(e, !known);
    emit_us(e, "total_a_us", total[SIDE_A]);
    emit_us(e, "total_b_us", total[SIDE_B]);
    emit_us(e, "change_us", total[SIDE_B] - total[SIDE_A]);
    emit_pct(e, "change_pct", diff_pct(total[SIDE_A], total[SIDE_B]));
    emit_hide(e, false);
}

/* Writes, and says, what B could not judge though A could: a finding about it is not known to be gone. */
static void emit_unjudged(struct two *two)
{
    struct emit *e = &two->session->emit;
    const struct advice *a = &two->side[SIDE_A].advice, *b = &two->side[SIDE_B].advice;
    struct text said = {0};
    emit_open(e, "not_judged_in_b", true);
    for (size_t i = 0; i < b->unjudged; i++) {
        bool known = false;
        for (size_t k = 0; k < a->unjudged; k++) known |= strcmp(a->not_judged[k].what, b->not_judged[i].what) == 0;
        if (known) continue;
        emit_text(e, NULL, b->not_judged[i].what);
        text_format(&said, "%s%s", said.length ? "; " : "", b->not_judged[i].what);
    }
    emit_close(e);
    if (said.length)
        complain(NULL, "B does not say enough to judge what A was judged by: %s. What is gone may be unknown",
                 said.data);
    text_free(&said);
}

static void print_two(struct two *two)
{
    struct session *session = two->session;
    uint64_t rows = 0;
    if (!session_begin(session, STYLE_BLOCKS)) return;
    for (int side = 0; side < SIDES; side++) session_name_inputs(session, &two->of[side]);
    emit_keys(&session->emit, finding_keys);
    for (enum finding_state state = 0; state < NR_FINDING_STATES; state++) emit_state(two, state, &rows);
    emit_totals(&session->emit);
    emit_walls(two);
    for (int i = 0; i < NR_FINDING_STATES; i++) emit_count(&session->emit, finding_state_names[i], two->of_state[i]);
    emit_unjudged(two);
    emit_end(&session->emit);
    if (!rows) complain(NULL, "neither run has a finding");
    session_end(session, rows || !is_filtered(&session->options));
}

/* ---- judging ---- */

static const struct command *command_of_advice(const struct options *options)
{
    const struct command *command = options->commands;
    while (definition_of(command, options)->needs != advise_needs) command++;
    return command;
}

static bool judge_side(struct two *two, int side, const struct command **question)
{
    struct judged_side *of = &two->side[side];
    if (!side_load(two->session, &two->of[side], side, question)) return false;
    of->walls = session_walls(&two->of[side]);
    of->roofline.gpu = two->session->options.gpu;
    roofline_of_model(&of->roofline, &two->of[side].chosen);
    advise(&of->advice, &two->of[side].chosen, of->walls, &of->roofline);
    return true;
}

void findings_of_two(struct session *session)
{
    struct two *two = mem_zero(1, sizeof *two);
    const struct command *question = command_of_advice(&session->options);
    two->session = session;
    if (judge_side(two, SIDE_A, &question) && judge_side(two, SIDE_B, &question)) {
        if (sides_ranks(&two->ranks, two->of)) print_two(two);
        else session->status = STATUS_NOTHING;
    }
    diff_ranks_free(&two->ranks);
    for (int i = 0; i < SIDES; i++) {
        advice_free(&two->side[i].advice);
        roofline_free(&two->side[i].roofline);
        session_free(&two->of[i]);
    }
    free(two);
}
