/* gate_runs.c - reads repeated runs of two sides, and prints how the gate judges each of their rows.
 *
 * Each run is read by a session of its own and freed before the next one; what stays is a time for each row. The time of a
 * whole run is the wall time of its slowest rank, as `budget` has it. A gate must not pass by mistake: a row that a run
 * lacks, a run that is not whole and sides of different ranks fail it.
 */
#include "commands/changes/gate_runs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ask/diff/diff_rows.h"
#include "ask/diff/gate.h"
#include "ask/diff/timing_file.h"
#include "base/command.h"

#define SMALL_SHARE .01 /* of the longest row's time: rows below it are not judged */

static const char gate_keys[] =
    "name,kind,runs_a,runs_b,mean_a_us,mean_b_us,change_pct,lowest_pct,highest_pct,verdict,more_runs";

struct one_run {
    double *time; /* by row, in nanoseconds; 0: it lacks the row */
    size_t rows;
};

/* A row that is judged. */
struct judged {
    size_t row; /* in the rows of struct gate */
    struct gate_result result;
};

struct gate {
    struct session *session;
    enum diff_by by;
    size_t count[SIDES]; /* of runs */
    struct one_run *run; /* those of A, then those of B */
    struct diff rows;    /* of all runs: their names and kinds */
    int64_t *rank;       /* of the first run, sorted */
    size_t ranks;
    size_t partial, small; /* runs that are not whole; rows that are not judged */
    bool other_ranks;
    struct judged *judged;
    size_t judgements, of_verdict[NR_GATE_VERDICTS];
};

/* ---- reading the runs ---- */

static char *path_of(const struct gate *gate, size_t run)
{
    const struct options *o = &gate->session->options;
    return run < gate->count[SIDE_A] ? o->inputs.text[run] : o->after.text[run - gate->count[SIDE_A]];
}

static void put_time(struct gate *gate, struct one_run *run, const struct name *name, enum diff_kind kind, int64_t time)
{
    size_t place = diff_place(&gate->rows, name, kind);
    if (place >= run->rows) {
        run->time = mem_resize(run->time, place + 1, sizeof *run->time);
        while (run->rows <= place) run->time[run->rows++] = 0;
    }
    run->time[place] += (double)time;
}

static void put_whole_run(struct gate *gate, struct one_run *run, int64_t time)
{
    static const struct name whole = {.text = "(run)", .length = sizeof "(run)" - 1};
    put_time(gate, run, &whole, DIFF_STAGE, time);
}

/* Keeps the ranks of the first run, and compares those of the others with them. */
static void compare_ranks(struct gate *gate, const struct diff_ranks *ranks)
{
    size_t count = ranks->count[SIDE_A], bytes = count * sizeof *gate->rank;
    if (!gate->rank) {
        gate->rank = mem_zero(count + 1, sizeof *gate->rank);
        gate->ranks = count;
        memcpy(gate->rank, ranks->rank[SIDE_A], bytes);
    }
    bool one_each = count == 1 && gate->ranks == 1;
    gate->other_ranks |= !one_each && (gate->ranks != count || memcmp(gate->rank, ranks->rank[SIDE_A], bytes) != 0);
}

/* The slowest rank decides. A wall that is unknown leaves the run without a time. */
static void take_wall(struct gate *gate, struct one_run *run, struct session *own)
{
    const struct walls *walls = session_walls(own);
    int64_t longest = 0;
    bool known = true;
    for (size_t i = 0; i < walls->count; i++) {
        const struct wall_part *part = wall_judged(&walls->wall[i]);
        known &= part && !part->unknown;
        longest = part ? MAX(longest, part->total) : longest;
    }
    put_whole_run(gate, run, known ? longest : 0);
}

static void take_rows(struct gate *gate, struct one_run *run, struct session *own, const struct diff_ranks *ranks)
{
    struct diff diff;
    diff_init(&diff);
    diff_collect(&diff, SIDE_A, &own->chosen, session_summaries(own), ranks);
    for (size_t i = 0; i < diff.count; i++)
        put_time(gate, run, names_get(&diff.names, diff.row[i].name), diff.row[i].kind, diff.row[i].time[SIDE_A]);
    if (diff.unknown[SIDE_A]) own->status = STATUS_PARTIAL;
    diff_free(&diff);
}

static bool read_timing(struct gate *gate, struct one_run *run, const char *path)
{
    struct diff diff;
    diff_init(&diff);
    bool good = timing_file_add(&diff, SIDE_A, path);
    if (good && gate->by == BY_RUN) put_whole_run(gate, run, diff.has_total[SIDE_A] ? diff.total[SIDE_A] : 0);
    for (size_t i = 0; good && gate->by != BY_RUN && i < diff.count; i++)
        put_time(gate, run, names_get(&diff.names, diff.row[i].name), DIFF_STAGE, diff.row[i].time[SIDE_A]);
    diff_free(&diff);
    if (good) emit_input(&gate->session->emit, path, "timing", -1, true, -1, -1, false);
    return good;
}

static const struct command *command_of_walls(const struct options *options)
{
    const struct command *command = options->commands;
    while (definition_of(command, options)->reduction != &wall_reduction) command++;
    return command;
}

/* Returns false, after a message, if the run has nothing usable. */
static bool read_run(struct gate *gate, struct one_run *run, char *path)
{
    const struct options *options = &gate->session->options;
    const struct command *question = gate->by == BY_RUN ? command_of_walls(options) : options->command;
    if (is_timing_file(path)) return read_timing(gate, run, path);
    struct session own = {.options = *options, .borrows_options = true};
    own.options.inputs = (struct strings_list){&path, 1};
    own.options.by = gate->by;
    own.options.command = question;
    own.options.question = &question;
    bool good = session_load(&own);
    if (good) {
        struct diff_ranks ranks;
        diff_ranks_init(&ranks, &own.chosen, &own.chosen);
        compare_ranks(gate, &ranks);
        if (gate->by == BY_RUN) take_wall(gate, run, &own);
        else take_rows(gate, run, &own, &ranks);
        diff_ranks_free(&ranks);
        session_name_inputs(gate->session, &own);
        for (size_t i = 0; i < own.chosen.processes; i++)
            if (!own.chosen.process[i]->complete || own.chosen.process[i]->lost) own.status = STATUS_PARTIAL;
        gate->partial += own.status != 0;
    } else {
        complain(NULL, "%s is a run without anything to judge", path);
    }
    session_free(&own);
    return good;
}

/* ---- judging ---- */

static double time_of(const struct one_run *run, size_t row)
{
    return row < run->rows ? run->time[row] : 0;
}

/* Returns the sum of a row's times on a side. */
static double sum_of(const struct gate *gate, int side, size_t row)
{
    const struct one_run *run = side == SIDE_A ? gate->run : gate->run + gate->count[SIDE_A];
    double sum = 0;
    for (size_t i = 0; i < gate->count[side]; i++) sum += time_of(&run[i], row);
    return sum;
}

/* Chooses the rows that are judged: those that are not small on both sides. */
static void choose_rows(struct gate *gate)
{
    double longest[SIDES] = {0};
    gate->judged = mem_zero(gate->rows.count + 1, sizeof *gate->judged);
    for (int side = 0; side < SIDES; side++)
        for (size_t i = 0; i < gate->rows.count; i++) longest[side] = fmax(longest[side], sum_of(gate, side, i));
    for (size_t i = 0; i < gate->rows.count; i++) {
        bool small = true;
        for (int side = 0; side < SIDES; side++) small &= sum_of(gate, side, i) < longest[side] * SMALL_SHARE;
        if (small) gate->small++;
        else gate->judged[gate->judgements++].row = i;
    }
}

static int by_verdict(const void *a, const void *b)
{
    const struct judged *x = a, *y = b;
    double change_x = isnan(x->result.change) ? 0 : x->result.change,
           change_y = isnan(y->result.change) ? 0 : y->result.change;
    if (x->result.verdict != y->result.verdict) return x->result.verdict < y->result.verdict ? -1 : 1;
    if (change_x != change_y) return change_x > change_y ? -1 : 1;
    return x->row < y->row ? -1 : 1;
}

static void judge_rows(struct gate *gate)
{
    size_t most = MAX(gate->count[SIDE_A], gate->count[SIDE_B]);
    double *time[SIDES] = {mem_zero(most, sizeof **time), mem_zero(most, sizeof **time)};
    for (size_t i = 0; i < gate->judgements; i++) {
        struct judged *judged = &gate->judged[i];
        struct gate_times times[SIDES];
        for (int side = 0; side < SIDES; side++) {
            const struct one_run *run = side == SIDE_A ? gate->run : gate->run + gate->count[SIDE_A];
            for (size_t k = 0; k < gate->count[side]; k++) time[side][k] = time_of(&run[k], judged->row);
            times[side] = (struct gate_times){time[side], gate->count[side]};
        }
        judged->result = gate_judge(times[SIDE_A], times[SIDE_B], gate->session->options.gate, gate->judgements);
        gate->of_verdict[judged->result.verdict]++;
    }
    if (gate->judgements) qsort(gate->judged, gate->judgements, sizeof *gate->judged, by_verdict);
    for (int side = 0; side < SIDES; side++) free(time[side]);
}

/* ---- printing ---- */

static void emit_mean(struct emit *e, const char *key, double ns)
{
    if (ns < (double)INT64_MAX) emit_us(e, key, llround(ns));
    else emit_null(e, key);
}

static void emit_more(struct emit *e, const struct gate_result *result)
{
    if (result->verdict == GATE_PASSED || result->verdict == GATE_REGRESSED) emit_count(e, "more_runs", 0);
    else if (result->more) emit_count(e, "more_runs", result->more);
    else emit_null(e, "more_runs");
}

static void emit_judged(const struct gate *gate, const struct judged *judged)
{
    struct emit *e = &gate->session->emit;
    const struct gate_result *result = &judged->result;
    const struct diff_row *row = &gate->rows.row[judged->row];
    const struct name *name = names_get(&gate->rows.names, row->name);
    emit_row(e);
    emit_bytes_text(e, "name", name->text, name->length);
    emit_text(e, "kind", gate->by == BY_RUN ? "run" : diff_kind_name(row));
    emit_count(e, "runs_a", gate->count[SIDE_A]);
    emit_count(e, "runs_b", gate->count[SIDE_B]);
    emit_mean(e, "mean_a_us", result->mean_a);
    emit_mean(e, "mean_b_us", result->mean_b);
    emit_pct(e, "change_pct", result->change);
    emit_pct(e, "lowest_pct", result->lowest);
    emit_pct(e, "highest_pct", result->highest);
    emit_text(e, "verdict", gate_verdict_names[result->verdict]);
    emit_more(e, result);
    emit_row_end(e);
}

static bool passes(const struct gate *gate)
{
    return gate->judgements && gate->of_verdict[GATE_PASSED] == gate->judgements && !gate->partial &&
           !gate->other_ranks;
}

static void emit_sums(const struct gate *gate)
{
    struct emit *e = &gate->session->emit;
    emit_totals(e);
    emit_bool(e, "passed", passes(gate));
    emit_pct(e, "gate_pct", gate->session->options.gate);
    emit_pct(e, "error_pct", GATE_ERROR * 100);
    emit_count(e, "rows", gate->judgements);
    emit_count(e, "regressed", gate->of_verdict[GATE_REGRESSED]);
    emit_count(e, "inconclusive", gate->of_verdict[GATE_INCONCLUSIVE]);
    emit_count(e, "absent", gate->of_verdict[GATE_ABSENT]);
    emit_count(e, "small", gate->small);
    emit_end(e);
}

/* Says how many rows have a verdict, and what the first of them is. */
static void say_verdict(const struct gate *gate, enum gate_verdict verdict)
{
    size_t count = gate->of_verdict[verdict], i = 0;
    double allowed = gate->session->options.gate;
    if (!count) return;
    while (gate->judged[i].result.verdict != verdict) i++;
    const struct gate_result *first = &gate->judged[i].result;
    const struct name *name = names_get(&gate->rows.names, gate->rows.row[gate->judged[i].row].name);
    struct text line = {0};
    text_format(&line, "%zu of %zu rows ", count, gate->judgements);
    if (verdict == GATE_REGRESSED)
        text_format(&line, "regressed beyond %g %%; the first: %s, %.1f %%, at least %.1f %%", allowed, name->text,
                    first->change, first->lowest);
    else if (verdict == GATE_ABSENT)
        text_format(&line, "cannot be judged, as not every run has a time for them; the first: %s", name->text);
    else if (isnan(first->lowest))
        text_format(&line, "are inconclusive, as %d runs of each side are the fewest that show noise", GATE_LEAST);
    else
        text_format(&line, "are inconclusive at %g %%; the first: %s, %.1f %%, between %.1f and %.1f %%", allowed,
                    name->text, first->change, first->lowest, first->highest);
    if (verdict == GATE_INCONCLUSIVE && first->more)
        text_format(&line, "; %llu more runs of each side %s", (unsigned long long)first->more,
                    isnan(first->lowest) ? "may be judged" : "would decide it nine times of ten");
    else if (verdict == GATE_INCONCLUSIVE)
        text_format(&line, "; it is so near to the gate that %d runs of each side would not decide it", GATE_MOST);
    complain(NULL, "%s", line.data);
    text_free(&line);
}

static void print_gate(struct gate *gate)
{
    struct session *session = gate->session;
    uint64_t top = session->options.top;
    for (size_t i = 0; i < gate->judgements && (!top || i < top); i++) emit_judged(gate, &gate->judged[i]);
    emit_sums(gate);
    bool found = gate->judgements || !is_filtered(&session->options);
    session_end(session, found);
    if (!found) return;
    for (enum gate_verdict v = 0; v < GATE_PASSED; v++) say_verdict(gate, v);
    if (!gate->judgements) complain(NULL, "no run has anything to judge; `tfanalyze info` shows what they have");
    if (gate->partial)
        complain(NULL, "%zu of %zu runs are not whole, which no gate passes; `tfanalyze info` shows what they lack",
                 gate->partial, gate->count[SIDE_A] + gate->count[SIDE_B]);
    if (gate->other_ranks)
        complain(NULL,
                 "not all runs have the same ranks, which no gate passes; --rank chooses those they have in common");
    if (!passes(gate)) session->status = STATUS_GATE;
}

/* ---- the gate ---- */

/* Returns a run that one side has twice: a copy has no noise of its own, which the test would take for certainty. */
static const char *given_twice(const struct gate *gate)
{
    size_t count = gate->count[SIDE_A] + gate->count[SIDE_B];
    struct stat *seen = mem_zero(count, sizeof *seen);
    const char *twice = NULL;
    for (size_t i = 0; i < count && !twice; i++) {
        bool known = tfi_stat(path_of(gate, i), &seen[i]) == 0;
        for (size_t k = i < gate->count[SIDE_A] ? 0 : gate->count[SIDE_A]; k < i && known; k++)
            if (seen[k].st_ino == seen[i].st_ino && seen[k].st_dev == seen[i].st_dev) twice = path_of(gate, i);
    }
    free(seen);
    return twice;
}

static bool is_refused(const struct session *session, enum diff_by by)
{
    const struct options *o = &session->options;
    const char *filter = o->device.count ? "--device" : o->stream.count ? "--stream" : NULL, *why = NULL;
    if (by == BY_RUN && o->cycle.count) filter = "--cycle";
    if (filter && by != BY_KERNEL) why = "needs --by kernel";
    if (by == BY_FINDING || by == BY_TREE) {
        filter = by == BY_TREE ? "--by tree" : "--by finding";
        why = "compares one run of each side, without --gate";
    }
    for (size_t i = 0; i < o->inputs.count + o->after.count && !why; i++) {
        const char *path = i < o->inputs.count ? o->inputs.text[i] : o->after.text[i - o->inputs.count];
        if (!is_timing_file(path)) continue;
        filter = by == BY_OP || by == BY_KERNEL ? "--by"
                 : o->rank.count                ? "--rank"
                 : o->pid.count                 ? "--pid"
                                                : "a filter of events";
        if (by == BY_OP || by == BY_KERNEL || o->rank.count || o->pid.count || is_filtered(o))
            why = "has no meaning for a timing.json, which has durations of whole stages only";
    }
    if (why) complain(NULL, "%s %s", filter, why);
    return why != NULL;
}

void gate_runs(struct session *session)
{
    struct gate gate = {.session = session, .by = diff_by(&session->options)};
    const struct strings_list *a = &session->options.inputs, *b = &session->options.after;
    if (is_refused(session, gate.by)) {
        session->status = STATUS_USAGE;
        return;
    }
    gate.count[SIDE_A] = a->count;
    gate.count[SIDE_B] = b->count;
    const char *twice = given_twice(&gate);
    if (twice) {
        complain(NULL, "--gate needs runs that are independent of each other: one side has %s twice", twice);
        session->status = STATUS_USAGE;
        return;
    }
    gate.run = mem_zero(a->count + b->count, sizeof *gate.run);
    diff_init(&gate.rows);
    if (session_begin(session, STYLE_TABLE)) {
        emit_keys(&session->emit, gate_keys);
        bool good = true;
        for (size_t i = 0; i < a->count + b->count && good; i++)
            good = read_run(&gate, &gate.run[i], path_of(&gate, i));
        if (good) {
            choose_rows(&gate);
            judge_rows(&gate);
            print_gate(&gate);
        } else {
            session_end_said(session, false);
        }
    }
    for (size_t i = 0; i < a->count + b->count; i++) free(gate.run[i].time);
    diff_free(&gate.rows);
    free(gate.run);
    free(gate.rank);
    free(gate.judged);
}
