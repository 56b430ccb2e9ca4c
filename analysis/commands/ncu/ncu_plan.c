/* ncu_plan.c - prints the command lines with which Nsight Compute measures the kernels that take most of a stage.
 *
 * Text is a shell script: a comment and a command for each kernel. The words of COMMAND are printed as the user typed them;
 * without COMMAND the script runs its own arguments. Nothing of a trace is printed as a word of a command but names of
 * kernels and stages, which are quoted; a name with characters that no command line should have is left out.
 */
#include <math.h>
#include <stdlib.h>

#include "ask/ncu/ncu_launches.h"
#include "ask/ncu/ncu_names.h"
#include "base/escape.h"
#include "commands/session.h"
#include "write/stage_files.h"

enum { KERNELS_SHOWN = 5 };

struct planning {
    struct session *session;
    uint64_t shown, left_out, communicate, inexact;
};

/* ---- words of a shell ---- */

static void add_word(struct text *line, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=,@%+-";
    text_puts(line, line->length ? " " : "");
    if (*word && word[strspn(word, plain)] == 0) {
        text_puts(line, word);
        return;
    }
    text_puts(line, "'");
    for (const char *p = word; *p; p++)
        if (*p == '\'') text_puts(line, "'\\''");
        else text_add(line, p, 1);
    text_puts(line, "'");
}

static bool is_printable(const char *text)
{
    const char *end = text + strlen(text);
    size_t length;
    uint32_t code;
    for (const char *p = text; p < end; p += length)
        if (is_unsafe(p, end, &length, &code)) return false;
    return true;
}

static void add_number(struct text *line, const char *option, uint64_t number)
{
    text_format(line, " %s %llu", option, (unsigned long long)number);
}

static void command_line(struct planning *p, const struct ncu_planned *row, struct text *line)
{
    static const char *const sections[] = {
        "SpeedOfLight", "MemoryWorkloadAnalysis", "SchedulerStats", "WarpStateStats", "Occupancy", "LaunchStats"};
    const struct names *names = &p->session->model.names;
    const struct strings_list *words = &p->session->options.after;
    const struct name *kernel = names_get(names, row->name), *stage = names_get(names, row->stage);
    struct text function = {0};
    text_puts(line, "ncu --target-processes all");
    if (ncu_by_mangled(kernel->text)) text_puts(line, " --kernel-name-base mangled --kernel-name");
    else text_puts(line, " --kernel-name-base function --kernel-name");
    ncu_filter_name(kernel->text, &function);
    add_word(line, function.data ? function.data : "");
    add_number(line, "--launch-skip", row->skip);
    add_number(line, "--launch-count", row->count);
    for (size_t i = 0; i < ARRAY_SIZE(sections); i++) text_format(line, " --section %s", sections[i]);
    char *clean = stage_clean_name(stage->text, stage->length);
    for (char *c = clean; *c; c++) *c = strchr(" #*()", *c) ? '_' : *c; /* what a shell would expand */
    char *file = string_format("ncu.%s.%llu", clean, (unsigned long long)p->shown);
    text_puts(line, " -o");
    add_word(line, file);
    for (size_t i = 0; i < words->count; i++) add_word(line, words->text[i]);
    if (!words->count) text_puts(line, " \"$@\"");
    text_free(&function);
    free(clean);
    free(file);
}

/* ---- rows ---- */

static void say_text(struct planning *p, const struct ncu_planned *row, const char *why, const char *line)
{
    const struct names *names = &p->session->model.names;
    const struct name *stage = names_get(names, row->stage);
    struct out *out = &p->session->out;
    struct text said = {0}, function = {0};
    ncu_plain_name(names_get(names, row->name)->text, &function, NULL);
    text_visible(&said, function.data ? function.data : "", function.length);
    text_puts(&said, ", ");
    text_visible(&said, stage->text, stage->length);
    text_format(&said, ": %.1f %% of its kernels' time, ",
                row->of_stage ? 100.0 * (double)row->total / (double)row->of_stage : 0.0);
    human_time(&said, row->total);
    text_format(&said, "; launch %llu of %zu there", (unsigned long long)row->at + 1, row->calls);
    out_format(out, "%s# %s\n", p->shown > 1 ? "\n" : "", said.data);
    if (why) out_format(out, "# the skip may be too small: %s\n", why);
    out_format(out, "%s\n", line);
    text_free(&said);
    text_free(&function);
}

static void emit_plan_row(struct planning *p, const struct process *process, const struct ncu_planned *row,
                          const char *why, const char *line)
{
    struct emit *e = &p->session->emit;
    const struct name *name = names_get(&p->session->model.names, row->name);
    char *readable = readable_name(name->text);
    emit_row(e);
    emit_stage(e, names_get(&p->session->model.names, row->stage));
    emit_known(e, "rank", process->rank);
    emit_text(e, "kernel", readable);
    emit_count(e, "calls", row->calls);
    emit_us(e, "total_us", row->total);
    emit_pct(e, "pct", row->of_stage ? 100.0 * (double)row->total / (double)row->of_stage : NAN);
    emit_count(e, "launch", row->at + 1);
    emit_count(e, "skip", row->skip);
    emit_count(e, "count", row->count);
    emit_text(e, "doubt", why);
    emit_text(e, "command", line);
    emit_row_end(e);
    free(readable);
}

/* Returns the number of rows of the process. */
static size_t plan_process(struct planning *p, struct scope *scope)
{
    const struct options *options = &p->session->options;
    const struct names *names = &p->session->model.names;
    const char *why = ncu_plan_doubt(scope->process);
    uint64_t top = options->top ? options->top : KERNELS_SHOWN;
    struct ncu_plan plan;
    ncu_plan_of(&plan, scope, names);
    for (size_t i = 0, shown = 0; i < plan.count && shown < top; i++) {
        struct text line = {0};
        p->communicate += plan.row[i].communicates;
        if (plan.row[i].communicates) continue;
        shown++;
        if (!is_printable(names_get(names, plan.row[i].name)->text)) {
            p->left_out++;
            continue;
        }
        p->shown++;
        p->inexact += why != NULL;
        command_line(p, &plan.row[i], &line);
        if (options->format == FORMAT_TEXT) say_text(p, &plan.row[i], why, line.data);
        else emit_plan_row(p, scope->process, &plan.row[i], why, line.data);
        text_free(&line);
    }
    size_t count = plan.count;
    ncu_plan_free(&plan);
    return count;
}

/* Ranks launch the same kernels as a rule, and ncu measures any: the first one is planned for, unless others are chosen. */
static size_t plan_processes(struct planning *p)
{
    const struct selection *chosen = &p->session->chosen;
    const struct options *options = &p->session->options;
    bool all = options->rank.count || options->pid.count;
    size_t rows = 0, left = 0;
    for (size_t i = 0; i < chosen->processes; i++) {
        if (rows && !all) {
            left++;
            continue;
        }
        struct scope *scope = scope_begin(chosen, i);
        rows += plan_process(p, scope);
        scope_end(scope);
    }
    if (left) complain(NULL, "planned for one process; --rank or --pid chooses among the other %zu", left);
    return rows;
}

void cmd_ncu_plan(struct session *session)
{
    struct planning p = {.session = session};
    struct emit *e = &session->emit;
    bool is_text = session->options.format == FORMAT_TEXT;
    session->options.names = NAMES_MANGLED; /* as ncu's filter wants them */
    if (!session_ask(session, STYLE_LINES)) return;
    size_t rows = plan_processes(&p);
    if (is_text && p.shown) out_puts(&session->out, "\n# then: tfanalyze ncu report ncu.*.ncu-rep TRACE\n");
    if (!is_text) {
        emit_totals(e);
        emit_count(e, "kernels", rows);
        emit_count(e, "doubted", p.inexact);
    }
    if (!is_text) emit_end(e);
    if (p.left_out)
        complain(NULL, "%llu kernels have names with characters that no command line should have",
                 (unsigned long long)p.left_out);
    if (p.communicate)
        complain(NULL,
                 "%llu kernels that communicate are left out: ncu repeats each kernel, and theirs would wait for the "
                 "other ranks for ever",
                 (unsigned long long)p.communicate);
    if (!rows && !is_filtered(&session->options))
        complain(NULL, "no kernel was recorded; `tfanalyze info` shows the recorded events");
    session_end(session, rows || !is_filtered(&session->options));
}
