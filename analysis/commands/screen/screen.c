/* screen.c - the first screen: where the time went, what to change, the stages as a tree, and what was not judged.
 *
 * It has at most 40 lines of 100 columns. A column has one unit, and a row that says nothing is left out. The numbers are
 * those of `budget`, `advise` and `stages`, from one reading of the inputs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advise/findings.h"
#include "ask/stages/start_times.h"
#include "commands/screen/first_screen.h"
#include "commands/screen/screen_lines.h"
#include "commands/screen/stage_tree.h"
#include "commands/session_notes.h"

enum { MOST_FINDINGS = 5, LEAVES_SHOWN = 7, STAGES_SHOWN = 8, UNJUDGED_SHOWN = 4 };
/* Lines of findings and stages together: 40 without the longest head, budget, and list of what was not judged. */
enum { FINDINGS_AND_STAGES = 40 - 2 - 11 - 3 - 6 };
#define BRIEF_LEAST 10000000 /* nanoseconds: no advice behind a run that was shorter */

struct needs screen_needs(const struct options *options)
{
    return needs_union(advise_needs(options), stage_tree_needs(options));
}

/* ---- the head ---- */

static void put_run(struct out *out, const struct session *session, const struct walls *walls)
{
    const struct selection *chosen = &session->chosen;
    struct text line = {0};
    uint64_t events = 0;
    size_t complete = 0, doubtful = 0, lossy = 0;
    for (size_t i = 0; i < chosen->processes; i++) {
        events += chosen->process[i]->events;
        complete += chosen->process[i]->complete;
        lossy += chosen->process[i]->lost > 0;
        doubtful += doubts_matter(&chosen->process[i]->health);
    }
    text_format(&line, "%zu rank%s, %zu process%s, %llu events; ", walls->count, walls->count == 1 ? "" : "s",
                chosen->processes, chosen->processes == 1 ? "" : "es", (unsigned long long)events);
    if (complete < chosen->processes) text_format(&line, "%zu incomplete, ", chosen->processes - complete);
    if (lossy) text_format(&line, "%zu lost records, ", lossy);
    if (doubtful) text_format(&line, "%zu doubtful, ", doubtful);
    size_t unread = session_unread(session);
    if (unread) text_format(&line, "%zu file%s not readable, ", unread, unread == 1 ? "" : "s");
    if (complete == chosen->processes && !lossy && !doubtful && !unread) text_puts(&line, "complete");
    else text_puts(&line, "`tfanalyze info` says what");
    screen_line(out, &line);
}

static void put_machine(struct out *out, const struct session *session)
{
    struct text line = {0};
    const struct process *p = session->chosen.process[0];
    if (p->command) text_format(&line, "%s", p->command);
    for (size_t i = 0; i < p->devices && !i; i++)
        text_format(&line, "%son %s%s", line.length ? " " : "", p->device[i].simulated ? "a simulated device: " : "",
                    model_name(&session->model, p->device[i].name));
    if (line.length) screen_line(out, &line);
    text_free(&line);
}

/* ---- where the time went ---- */

struct leaf_line {
    enum leaf leaf;
    bool device;
    int64_t all, least, most; /* over the ranks */
    double share;             /* of the time of all ranks */
};

static int lines_by_time(const void *a, const void *b)
{
    const struct leaf_line *x = a, *y = b;
    return x->all != y->all ? by_number(y->all, x->all) : by_number(x->leaf, y->leaf);
}

static size_t collect_leaves(const struct walls *walls, struct leaf_line *lines, size_t *ranks, int64_t *total)
{
    size_t count = 0;
    *ranks = 0;
    *total = 0;
    for (size_t i = 0; i < walls->count; i++) {
        const struct wall_part *part = wall_judged(&walls->wall[i]);
        if (!part) continue;
        ++*ranks;
        *total = add_ns(*total, part->total);
    }
    for (int leaf = 0; leaf < NR_LEAVES; leaf++) {
        struct leaf_line line = {.leaf = (enum leaf)leaf, .least = INT64_MAX};
        for (size_t i = 0; i < walls->count; i++) {
            const struct wall_part *part = wall_judged(&walls->wall[i]);
            if (!part) continue;
            line.device |= walls->wall[i].works > 0;
            line.all = add_ns(line.all, part->time[leaf]);
            line.least = MIN(line.least, part->time[leaf]);
            line.most = MAX(line.most, part->time[leaf]);
        }
        line.share = *total ? 100.0 * (double)line.all / (double)*total : 0;
        if (line.all) lines[count++] = line;
    }
    qsort(lines, count, sizeof *lines, lines_by_time);
    return count;
}

static void put_leaf(struct out *out, const struct leaf_line *l, size_t ranks)
{
    struct text line = {0};
    const struct leaf_row *row = &leaf_rows[l->leaf];
    bool device = l->device && row->path[1];
    text_format(&line, "%12.3f %6.1f %%", (double)l->all / (double)ranks / 1e6, l->share);
    if (ranks > 1) text_format(&line, " %12.3f ..%12.3f", (double)l->least / 1e6, (double)l->most / 1e6);
    text_format(&line, "  %-24s tfanalyze %s", row->path[device], row->command[device]);
    screen_line(out, &line);
}

static void put_budget(struct out *out, const struct walls *walls)
{
    struct leaf_line lines[NR_LEAVES];
    size_t ranks, shown = 0;
    int64_t total, rest = 0;
    size_t count = collect_leaves(walls, lines, &ranks, &total);
    struct text line = {0};
    if (!ranks) {
        text_puts(&line,
                  "where the time went: unknown, because records of this time were left out; see `tfanalyze info`");
        screen_gap(out, &line);
        return;
    }
    text_format(&line, "where the time went: %.3f ms%s", (double)total / (double)ranks / 1e6,
                ranks > 1 ? " a rank, the mean of all" : "");
    if (ranks < walls->count) text_format(&line, " (unknown of %zu other ranks)", walls->count - ranks);
    screen_gap(out, &line);
    text_puts(&line, ranks > 1 ? "          ms    share       least ms ..     most ms  leaf                     more"
                               : "          ms    share  leaf                     more");
    screen_line(out, &line);
    while (shown < count && (shown < LEAVES_SHOWN || count == LEAVES_SHOWN + 1) &&
           (lines[shown].share >= 0.5 || !shown))
        put_leaf(out, &lines[shown++], ranks);
    for (size_t i = shown; i < count; i++) rest = add_ns(rest, lines[i].all);
    if (!rest) return;
    text_format(&line, "%12.3f %6.1f %%", (double)rest / (double)ranks / 1e6, 100.0 * (double)rest / (double)total);
    if (ranks > 1) text_format(&line, "%28s", "");
    text_format(&line, "  %zu smaller %-14s tfanalyze budget", count - shown, count - shown == 1 ? "leaf" : "leaves");
    screen_line(out, &line);
}

/* ---- what to change ---- */

/* Appends what a finding says. One whose fix gains time says how much at most; the text of another has its rank and time. */
static void add_finding(struct text *line, const struct finding *f, const struct walls *walls)
{
    text_format(line, "%s", f->id);
    if (!f->headroom) {
        text_format(line, ": %s", f->text);
        return;
    }
    if (f->rank >= 0 && walls->count > 1) text_format(line, ", rank %lld", (long long)f->rank);
    text_format(line, ", up to %.3f ms: %s", (double)f->headroom / 1e6, f->words);
}

/* Returns the number of lines. A few findings have room for long sentences, and a fix is said once. */
static size_t put_findings(struct out *out, const struct advice *advice, const struct walls *walls)
{
    enum { FEW = 3 };
    struct text line = {0};
    size_t shown = 0, serious = 0, lines = 2;
    const char *fix = "";
    for (size_t i = 0; i < advice->firsts; i++) serious += advice->finding[i].severity > SEVERITY_NOTE;
    text_puts(&line, serious            ? "what to change, the largest gain first"
                     : advice->unjudged ? "what to change: nothing above a note in what could be judged"
                                        : "what to change: nothing above a note");
    screen_gap(out, &line);
    for (size_t i = 0; i < advice->firsts && shown < MOST_FINDINGS; i++) {
        const struct finding *f = &advice->finding[i];
        if (serious && f->severity == SEVERITY_NOTE) continue;
        if (!serious && shown == 2) break;
        text_format(&line, "  %zu  ", ++shown);
        add_finding(&line, f, walls);
        lines += screen_lines(out, &line, 5, serious <= FEW ? 2 : 1);
        if (strcmp(f->fix, fix) == 0) continue;
        text_format(&line, "     -> %s", f->fix);
        screen_line(out, &line);
        fix = f->fix;
        lines++;
    }
    return lines;
}

static void put_unjudged(struct out *out, const struct advice *advice)
{
    struct text line = {0};
    if (!advice->unjudged) return;
    text_puts(&line, "not judged");
    screen_gap(out, &line);
    size_t shown = advice->unjudged > UNJUDGED_SHOWN ? UNJUDGED_SHOWN - 1 : advice->unjudged;
    for (size_t i = 0; i < shown; i++) {
        const struct not_judged *n = &advice->not_judged[i];
        text_format(&line, "  %s: %s; %s", n->what, n->why, n->how);
        screen_lines(out, &line, 4, 2 * shown <= UNJUDGED_SHOWN ? 2 : 1);
    }
    if (shown == advice->unjudged) return;
    text_format(&line, "  and %zu more; `tfanalyze advise` lists all", advice->unjudged - shown);
    screen_line(out, &line);
}

/* The three lines of --brief. */
static void put_brief(struct out *out, const struct walls *walls, const struct advice *advice)
{
    struct leaf_line lines[NR_LEAVES];
    struct text line = {0};
    size_t ranks;
    int64_t total;
    size_t count = collect_leaves(walls, lines, &ranks, &total);
    if (ranks && total / (int64_t)ranks < BRIEF_LEAST) {
        text_format(&line, "%.3f ms%s: too short to say what to change", (double)total / (double)ranks / 1e6,
                    ranks > 1 ? " a rank" : "");
        screen_line(out, &line);
        text_free(&line);
        return;
    }
    if (ranks) text_format(&line, "%.3f s%s:", (double)total / (double)ranks / 1e9, ranks > 1 ? " a rank" : "");
    else text_puts(&line, "where the time went is unknown: records were left out");
    for (size_t i = 0; i < MIN(count, (size_t)3); i++)
        text_format(&line, "%s %.0f %% %s", i ? "," : "", lines[i].share,
                    leaf_rows[lines[i].leaf].path[lines[i].device]);
    screen_line(out, &line);
    const struct finding *first = advice->firsts ? &advice->finding[0] : NULL;
    if (first && first->severity == SEVERITY_NOTE) first = NULL;
    if (first) add_finding(&line, first, walls);
    else text_puts(&line, "nothing to change above a note, in what could be judged");
    screen_line(out, &line);
    text_format(&line, "not judged: ");
    for (size_t i = 0; i < advice->unjudged; i++) text_format(&line, "%s%s", i ? ", " : "", advice->not_judged[i].what);
    if (advice->unjudged) screen_line(out, &line);
    text_free(&line);
}

void cmd_screen(struct session *session)
{
    struct roofline roofline = {.gpu = session->options.gpu};
    struct advice advice;
    if (!session_ask(session, STYLE_TABLE)) return;
    const struct walls *walls = session_walls(session);
    roofline_of_model(&roofline, &session->chosen);
    advise(&advice, &session->chosen, walls, &roofline);
    bool found = !is_filtered(&session->options);
    for (size_t i = 0; i < walls->count; i++) found |= wall_judged(&walls->wall[i]) != NULL;
    if (found && session->options.brief) {
        put_brief(&session->out, walls, &advice);
    } else if (found) {
        put_run(&session->out, session, walls);
        put_machine(&session->out, session);
        put_budget(&session->out, walls);
        size_t lines = put_findings(&session->out, &advice, walls);
        stage_tree_print(&session->out, session, MIN((size_t)STAGES_SHOWN, FINDINGS_AND_STAGES - lines));
        put_unjudged(&session->out, &advice);
    }
    session_end(session, found);
    advice_free(&advice);
    roofline_free(&roofline);
}
