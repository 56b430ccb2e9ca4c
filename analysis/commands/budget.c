/* budget.c - divides the wall time of each rank into leaves that sum to it: one row per leaf.
 *
 * With --stage and --step the same is done for the time of each such stage and step. A leaf without time has no row. */
#include <math.h>

#include "advise/budget/wall.h"
#include "commands/session.h"

/* Writes the name of a part: a stage, a step by its number, or null for the whole rank. */
static void emit_part_name(struct session *session, const struct wall_part *part)
{
    struct text text = {0};
    if (part->stage == NAME_NONE) {
        emit_null(&session->emit, "stage");
    } else if (part->step == NO_PLACE) {
        emit_stage(&session->emit, names_get(&session->model.names, part->stage));
    } else {
        text_format(&text, "ProfilerStep#%u", part->step);
        emit_text(&session->emit, "stage", text.data);
        text_free(&text);
    }
}

static void emit_leaf(struct session *session, const struct wall *wall, const struct wall_part *part, enum leaf leaf)
{
    struct emit *e = &session->emit;
    const struct leaf_row *row = &leaf_rows[leaf];
    double share = part->total ? 100.0 * (double)part->time[leaf] / (double)part->total : NAN;
    emit_row(e);
    emit_known(e, "rank", wall->rank);
    emit_part_name(session, part);
    emit_text(e, "leaf", row->path[wall->works > 0]);
    emit_hide(e, part->unknown);
    emit_us(e, "us", part->time[leaf]);
    emit_pct(e, "pct", share);
    emit_hide(e, false);
    emit_text(e, "command", row->command[wall->works > 0]);
    emit_row_end(e);
}

/* Says why numbers are null. */
static void say_unknown_walls(const struct walls *walls)
{
    if (walls->unknown)
        complain(NULL, "records of some of this time are not in the traces, so that its leaves are unknown; "
                       "`tfanalyze info` shows what was recorded");
}

void cmd_budget(struct session *session)
{
    struct emit *e = &session->emit;
    int64_t total = 0;
    size_t rows = 0;
    if (!session_ask(session, STYLE_TABLE)) return;
    const struct walls *walls = session_walls(session);
    for (size_t i = 0; i < walls->count; i++) {
        const struct wall *wall = &walls->wall[i];
        for (size_t k = 0; k < wall->parts; k++) {
            total = add_ns(total, wall->part[k].total);
            for (int leaf = 0; leaf < NR_LEAVES; leaf++) {
                if (!wall->part[k].time[leaf]) continue;
                emit_leaf(session, wall, &wall->part[k], (enum leaf)leaf);
                rows++;
            }
        }
    }
    emit_totals(e);
    emit_count(e, "ranks", walls->count);
    emit_hide(e, walls->unknown);
    emit_us(e, "wall_us", total);
    emit_end(e);
    say_unknown_walls(walls);
    session_end(session, rows || !is_filtered(&session->options));
}
