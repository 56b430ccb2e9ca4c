/* session.c - what all commands do before and after their own work. */
#include "session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "pattern.h"

enum { STATUS_NOTHING = 1, STATUS_PARTIAL = 3 };
enum {
    WANT_FOR_ALL =
        WANT_RANGES | WANT_CALLS | WANT_MESSAGES | WANT_DEVICE | WANT_LAUNCHES | WANT_OPERATORS | WANT_OPERATOR_DETAILS
};

/* ---- loading ---- */

static void say_notes(const struct input *input)
{
    for (size_t i = 0; i < input->notes.count; i++) {
        complain(input->path, "%s", input->notes.note[i].text);
    }
}

static bool wanted(const struct session *session, const struct process *process)
{
    return list_has(&session->options.rank, process->rank) && list_has(&session->options.pid, process->pid);
}

/* Which ranks there are, for somebody who has asked for another. */
static char *ranks_there(const struct model *model)
{
    struct text text = {0};
    text_puts(&text, "there are");
    for (size_t i = 0; i < model->processes && i < 16; i++) {
        const struct process *p = &model->process[i];
        text_format(&text, "%s rank %lld pid %lld", i ? "," : "", (long long)p->rank, (long long)p->pid);
    }
    text_puts(&text, model->processes > 16 ? ", ..." : "");
    return text.data;
}

static void choose(struct session *session)
{
    const struct model *model = &session->model;
    session->process = mem_zero(model->processes, sizeof *session->process);
    for (size_t i = 0; i < model->processes; i++) {
        const struct process *process = &model->process[i];
        const struct input *input = &session->inputs.input[process->input];
        if (wanted(session, process)) {
            session->process[session->processes++] = process;
            session->status = notes_have(&input->notes, LOSS) ? STATUS_PARTIAL : session->status;
            say_notes(input);
        }
    }
}

static void choose_stage(struct session *session, uint32_t name)
{
    session->stages[name] = session_wants_stage(session, model_name(&session->model, name)) ? 0 : NO_PLACE;
}

/* Each name is compared once with what --stage wants. */
static void choose_stages(struct session *session)
{
    size_t names = session->model.names.count;
    if (!session->options.stage.count) {
        return;
    }
    bool *known = mem_zero(names, sizeof *known);
    session->stages = mem_resize(NULL, names, sizeof *session->stages);
    memset(session->stages, 0xff, names * sizeof *session->stages);
    choose_stage(session, NAME_RUN);
    choose_stage(session, NAME_OUTSIDE);
    for (size_t i = 0; i < session->processes; i++) {
        const struct ranges *r = &session->process[i]->ranges;
        for (size_t k = 0; k < r->table.count; k++) {
            if (!known[r->name[k]]) {
                known[r->name[k]] = true;
                choose_stage(session, r->name[k]);
            }
        }
    }
    free(known);
}

static bool load(struct session *session, unsigned want, bool keep)
{
    const struct options *options = &session->options;
    want |= options->names == NAMES_MANGLED ? WANT_MANGLED : 0;
    want |= options->rules != RULES_EXACT ? WANT_AS_WRITTEN : 0;
    model_init(&session->model);
    for (size_t i = 0; i < options->inputs.count; i++) {
        inputs_add(&session->inputs, options->inputs.text[i]);
    }
    inputs_read(&session->inputs, &session->model, want, (unsigned)MIN(options->jobs, 256), keep);
    for (size_t i = 0; i < session->inputs.count; i++) {
        if (!session->inputs.input[i].usable) {
            say_notes(&session->inputs.input[i]);
            session->status = STATUS_PARTIAL;
        }
    }
    if (!session->model.processes) {
        session->status = STATUS_NOTHING;
        return false;
    }
    choose(session);
    if (!session->processes) {
        char *there = ranks_there(&session->model);
        complain(NULL, "no process matches %s; %s", options->rank.count ? "--rank" : "--pid", there);
        free(there);
        session->status = STATUS_NOTHING;
        return false;
    }
    choose_stages(session);
    return true;
}

/* Several questions are answered from one reading, which then takes in what any of them may want. */
bool session_load(struct session *session, unsigned want, bool keep)
{
    if (session->loaded == LOAD_FIRST) {
        want |= session->options.questions > 1 ? WANT_FOR_ALL : 0;
        session->loaded = load(session, want, keep) ? LOADED : LOAD_FAILED;
    }
    return session->loaded == LOADED;
}

/* ---- filters ---- */

void session_window(const struct session *session, int64_t *from, int64_t *to)
{
    double start = (double)session->model.start;
    const struct options *options = &session->options;
    *from = INT64_MIN;
    *to = INT64_MAX;
    if (!isnan(options->from) && start + options->from * 1e9 < 9e18) {
        *from = session->model.start + (int64_t)llround(options->from * 1e9);
    } else if (!isnan(options->from)) {
        *from = INT64_MAX;
    }
    if (!isnan(options->to) && start + options->to * 1e9 < 9e18) {
        *to = session->model.start + (int64_t)llround(options->to * 1e9);
    }
}

bool session_wants_stage(const struct session *session, const char *name)
{
    const struct strings_list *globs = &session->options.stage;
    for (size_t i = 0; i < globs->count; i++) {
        if (tfi_glob(globs->text[i], name, strlen(name), false)) {
            return true;
        }
    }
    return globs->count == 0;
}

/* ---- the answer ---- */

/* Opens the output for the first of several answers, and separates it from the one before. */
static bool begin_answer(struct session *session)
{
    const struct options *options = &session->options;
    bool several = options->questions > 1, json = options->format == FORMAT_JSON;
    if (!session->answers && !out_open(&session->out, options->output)) {
        session->status = STATUS_NOTHING;
        return false;
    }
    if (several && json) {
        out_puts(&session->out, session->answers ? ",\n" : "[\n");
    } else if (several) {
        out_format(&session->out, "%s%s:\n", session->answers ? "\n" : "", command_name(options->command));
    }
    session->answers++;
    return true;
}

bool session_begin(struct session *session, enum emit_style style)
{
    const struct options *options = &session->options;
    if (!begin_answer(session)) {
        return false;
    }
    emit_begin(&session->emit, &session->out, options->format, style, options->command);
    emit_rules(&session->emit, options->rules);
    for (size_t i = 0; i < session->inputs.count; i++) {
        if (!session->inputs.input[i].usable) {
            const struct input *input = &session->inputs.input[i];
            emit_input(&session->emit, input->path, NULL, input->rank, false, -1, -1);
        }
    }
    for (size_t i = 0; i < session->processes; i++) {
        const struct process *p = session->process[i];
        emit_input(&session->emit, p->path, p->kind, p->rank, p->complete, (int64_t)p->events,
                   (int64_t)MIN(p->lost, (uint64_t)INT64_MAX));
    }
    return true;
}

static void say_list(struct text *text, const char *option, const struct list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        unsigned long long from = list->item[i].from, to = list->item[i].to;
        text_format(text, i ? "," : " %s ", option);
        text_format(text, from == to ? "%llu" : "%llu-%llu", from, to);
    }
}

static void say_nothing_found(const struct options *options)
{
    struct text filters = {0};
    for (size_t i = 0; i < options->stage.count; i++) {
        text_format(&filters, " --stage %s", options->stage.text[i]);
    }
    say_list(&filters, "--step", &options->step);
    say_list(&filters, "--cycle", &options->cycle);
    say_list(&filters, "--device", &options->device);
    say_list(&filters, "--stream", &options->stream);
    if (!isnan(options->from)) {
        text_format(&filters, " --from %g", options->from);
    }
    if (!isnan(options->to)) {
        text_format(&filters, " --to %g", options->to);
    }
    complain(NULL, "nothing matches%s; `tfanalyze %s` without it shows what there is",
             filters.data ? filters.data : " the filters", command_name(options->command));
    text_free(&filters);
}

void session_end(struct session *session, bool found)
{
    session->found += found;
    if (!found) {
        say_nothing_found(&session->options);
    }
    if (session->options.questions > 1) {
        return;
    }
    if (!found) {
        out_discard(&session->out);
        session->status = STATUS_NOTHING;
    } else if (!out_close(&session->out)) {
        session->status = STATUS_NOTHING;
    }
}

void session_spoil(struct session *session)
{
    session->status = session->status ? session->status : STATUS_PARTIAL;
}

void session_close(struct session *session)
{
    if (session->options.questions < 2 || !session->answers) {
        return;
    }
    out_puts(&session->out, session->options.format == FORMAT_JSON ? "]\n" : "");
    if (!session->found) {
        out_discard(&session->out);
        session->status = STATUS_NOTHING;
    } else if (!out_close(&session->out)) {
        session->status = STATUS_NOTHING;
    }
}

void session_free(struct session *session)
{
    inputs_free(&session->inputs);
    model_free(&session->model);
    free(session->process);
    free(session->stages);
    options_free(&session->options);
    *session = (struct session){.status = session->status};
}
