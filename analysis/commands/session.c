/* session.c - loads the inputs, summarises their processes, and begins and ends the answer, for all commands. */
#include "commands/session.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "ask/part_of_run.h"
#include "base/command.h"
#include "base/jobs.h"
#include "commands/session_notes.h"
#include "model/inputs/narrow_kinds.h"
#include "model/needs/guard.h"
#include "model/ranges/step_ranges.h"
#include "model/replays/capture_files.h"

/* ---- summaries ---- */

static const struct reduction *reduction_of(const struct session *session, size_t question)
{
    return definition_of(session->options.question[question], &session->options)->reduction;
}

/* True if all questions can be answered from summaries that stand alone. */
static bool summaries_suffice(const struct session *session)
{
    bool suffice = true;
    for (size_t i = 0; i < session->options.questions; i++) {
        const struct reduction *r = reduction_of(session, i);
        suffice &= r && r->stands_alone(&session->options);
    }
    return suffice;
}

/* Makes room for a summary of each input. More inputs appear only once no thread reads any more. */
static void summaries_reserve(struct session *session)
{
    size_t before = session->summary_room, count = session->inputs.count;
    if (count <= before) return;
    session->summary_room = count;
    for (size_t i = 0; i < session->options.questions; i++) {
        if (!reduction_of(session, i)) continue;
        session->taken[i] = mem_resize(session->taken[i], count, sizeof **session->taken);
        memset(session->taken[i] + before, 0, (count - before) * sizeof **session->taken);
    }
}

static void summaries_init(struct session *session)
{
    session->taken = mem_zero(session->options.questions, sizeof *session->taken);
    summaries_reserve(session);
    pthread_mutex_init(&session->lock, NULL);
}

/* Lets a question read what it needs of a process, and nothing else. */
static void summarise(struct session *session, size_t question, struct scope *scope)
{
    const struct command *command = session->options.question[question];
    const struct definition *of = definition_of(command, &session->options);
    guard_tables(scope->process, 1, of->needs(&session->options), command->name);
    session->taken[question][scope->process->input] = of->reduction->take(scope);
}

/* Returns a selection that no other thread uses. Few are made, because each compares every name of a stage once. */
static struct selection borrow(struct session *session)
{
    struct selection alone = {0};
    mem_hold(&session->lock);
    if (session->alones) alone = session->alone[--session->alones];
    mem_release(&session->lock);
    if (!alone.process) selection_init(&alone, &session->options, NULL, &session->model);
    return alone;
}

static void give_back(struct session *session, const struct selection *alone)
{
    mem_hold(&session->lock);
    session->alone = mem_grow(session->alone, &session->alone_capacity, session->alones + 1, sizeof *session->alone);
    session->alone[session->alones++] = *alone;
    mem_release(&session->lock);
}

static void drop(const struct session *session, size_t question, size_t input)
{
    void **place = &session->taken[question][input];
    if (*place) reduction_of(session, question)->free(*place);
    *place = NULL;
}

/* Takes the summaries of a process from a file of summaries. */
static void restore(struct session *session, const struct process *process)
{
    bool bad = false;
    for (size_t i = 0; i < session->options.questions; i++) {
        struct unpacking from = process->block.rest;
        drop(session, i, process->input);
        session->taken[i][process->input] =
            reduction_of(session, i)->restore(&session->model.names, process->rank, &from);
        bad |= from.bad;
    }
    atomic_fetch_add(&session->unreadable, bad);
}

/* Summarises a process that was just read, for all questions; other threads read others. */
static void summarise_alone(void *argument, const struct process *process)
{
    struct session *session = argument;
    if (!wants_process(&session->options, process)) return;
    summaries_reserve(session);
    if (process->block.bytes) {
        restore(session, process);
        return;
    }
    struct selection alone = borrow(session);
    selection_set(&alone, process);
    for (size_t i = 0; i < session->options.questions; i++) {
        drop(session, i, process->input); /* of an attempt that ran out of memory */
        summarise(session, i, scope_begin(&alone, 0));
    }
    scopes_forget(&alone);
    give_back(session, &alone);
}

/* Takes the summaries of the chosen processes, several at a time. */
struct summarising {
    struct session *session;
    size_t question;
    const struct reduction *reduction; /* NULL: that of the question */
    void **taken;                      /* with `reduction`: by process */
    atomic_size_t next;
};

static void *summarise_some(void *argument)
{
    struct summarising *s = argument;
    const struct selection *chosen = &s->session->chosen;
    size_t i;
    while ((i = atomic_fetch_add(&s->next, 1)) < chosen->processes) {
        struct scope *scope = scope_begin(chosen, i);
        if (s->reduction) s->taken[i] = s->reduction->take(scope);
        else summarise(s->session, s->question, scope);
        scope_end(scope);
    }
    return NULL;
}

void *const *session_summaries(struct session *session)
{
    const struct selection *chosen = &session->chosen;
    struct summarising s = {.session = session};
    while (session->options.question[s.question] != session->options.command) s.question++;
    if (!summaries_suffice(session)) jobs_run(session->options.jobs, chosen->processes, summarise_some, &s);
    free(session->summary);
    session->summary = mem_zero(chosen->processes, sizeof *session->summary);
    for (size_t i = 0; i < chosen->processes; i++)
        session->summary[i] = session->taken[s.question][chosen->process[i]->input];
    return session->summary;
}

/* The current question may have summaries of its own: they are of walls if it is `budget`. */
const struct walls *session_walls(struct session *session)
{
    const struct selection *chosen = &session->chosen;
    if (session->walls) return session->walls;
    session->walls = mem_zero(1, sizeof *session->walls);
    if (definition_of(session->options.command, &session->options)->reduction == &wall_reduction) {
        walls_collect(session->walls, chosen, session_summaries(session));
        return session->walls;
    }
    struct summarising s = {.session = session, .reduction = &wall_reduction};
    s.taken = mem_zero(chosen->processes, sizeof *s.taken);
    jobs_run(session->options.jobs, chosen->processes, summarise_some, &s);
    walls_collect(session->walls, chosen, s.taken);
    for (size_t i = 0; i < chosen->processes; i++) wall_reduction.free(s.taken[i]);
    free(s.taken);
    return session->walls;
}

static void summaries_free(struct session *session)
{
    for (size_t i = 0; session->taken && i < session->options.questions; i++) {
        for (size_t k = 0; session->taken[i] && k < session->summary_room; k++) drop(session, i, k);
        free(session->taken[i]);
    }
    free(session->taken);
    free(session->summary);
    for (size_t i = 0; i < session->alones; i++) selection_free(&session->alone[i]);
    free(session->alone);
}

/* ---- loading ---- */

/* Returns a list of the existing ranks, for the message that a requested one does not exist. */
static char *ranks_there(const struct model *model)
{
    struct text text = {0};
    text_puts(&text, "the inputs have");
    for (size_t i = 0; i < model->processes && i < 16; i++) {
        const struct process *p = &model->process[i];
        text_format(&text, "%s rank %lld pid %lld", i ? "," : "", (long long)p->rank, (long long)p->pid);
    }
    text_puts(&text, model->processes > 16 ? ", ..." : "");
    return text.data;
}

/* Reports records that were there at the first reading of a file, and not at a later one. */
static void say_unread(struct session *session)
{
    for (size_t i = 0; i < session->inputs.count; i++) {
        struct input *input = &session->inputs.input[i];
        if (!input->trace.unread) continue;
        complain(input->path, UNREAD, (unsigned long long)input->trace.unread);
        session_spoil(session);
        input->trace.unread = 0;
    }
}

static bool is_simulated(const struct process *process)
{
    for (size_t i = 0; i < process->devices; i++)
        if (process->device[i].simulated) return true;
    return false;
}

/* Simulated devices are labelled in every answer: JSON has a key of the input, and all formats have this line. */
static void say_simulated(const struct selection *chosen)
{
    size_t simulated = 0;
    for (size_t i = 0; i < chosen->processes; i++) simulated += is_simulated(chosen->process[i]);
    if (simulated)
        complain(NULL, "the devices of %zu of %zu processes are simulated: their times are not those of a GPU",
                 simulated, chosen->processes);
}

size_t session_inputs(struct session *session)
{
    const struct strings_list *words = &session->options.inputs;
    for (size_t i = 0; i < words->count && !session->found_inputs; i++) inputs_add(&session->inputs, words->text[i]);
    if (!session->found_inputs) captures_set_aside(&session->inputs);
    session->found_inputs = true;
    return session->inputs.count;
}

/* Returns the first question that a file of summaries does not answer; NULL if there is none. */
static const struct command *question_of_events(const struct session *session)
{
    const struct options *options = &session->options;
    for (size_t i = 0; i < options->questions; i++) {
        const struct reduction *r = reduction_of(session, i);
        if (!r || !r->restore || !r->stands_alone(options) || is_filtered(options)) return options->question[i];
    }
    return NULL;
}

/* Leaves files of summaries out of questions that need events. */
static void leave_out_summaries(struct session *session)
{
    const struct command *question = question_of_events(session);
    for (size_t i = 0; question && i < session->inputs.count; i++) {
        struct input *input = &session->inputs.input[i];
        if (input->kind != INPUT_SUMMARY) continue;
        input->left_out = true;
        notes_add(&input->notes, UNUSABLE,
                  "is left out: `%s`%s needs events, which a summary does not have; give the traces", question->name,
                  is_filtered(&session->options) ? " with filters" : "");
        input->left_out = false;
    }
}

static void read_inputs(struct session *session, const struct reading *reading)
{
    const struct options *options = &session->options;
    model_init(&session->model);
    names_choose(&session->model.names, options);
    session_inputs(session);
    inputs_leave_out_kinds(&session->inputs, options);
    leave_out_summaries(session);
    summaries_init(session);
    if (reading->needs.captures && !captures_read(&session->captures, options, reading->needs.operator_details,
                                                  &session->inputs, &session->model.names))
        session_spoil(session);
    inputs_read(&session->inputs, &session->model, reading);
    summaries_reserve(session);
}

static bool load(struct session *session, struct needs needs)
{
    const struct options *options = &session->options;
    struct reading reading = {.needs = part_needs(options, needs), .jobs = (unsigned)MIN(options->jobs, 256)};
    reading.take = summaries_suffice(session) ? summarise_alone : NULL;
    reading.argument = session;
    reading.captures = &session->captures;
    read_inputs(session, &reading);
    session_say_unusable(session);
    if (session->unreadable) {
        complain(NULL, "%zu summaries hold what this tfanalyze cannot read: their processes count as empty",
                 (size_t)session->unreadable);
        session->status = STATUS_PARTIAL;
    }
    if (!session->model.processes) {
        session->status = STATUS_NOTHING;
        return false;
    }
    selection_init(&session->chosen, options, &session->inputs, &session->model);
    if (reading.needs.stream == STREAM_PART) part_load(&session->chosen, &session->inputs);
    session_say_notes(session);
    say_unread(session);
    say_simulated(&session->chosen);
    if (!session->chosen.processes) {
        char *there = ranks_there(&session->model);
        complain(NULL, "no process matches %s; %s", options->rank.count ? "--rank" : "--pid", there);
        free(there);
        session->status = STATUS_NOTHING;
        return false;
    }
    return true;
}

struct needs no_needs(const struct options *options)
{
    (void)options;
    return (struct needs){0};
}

/* Lets the question read what it needs, and nothing else. */
static void guard_question(struct session *session)
{
    const struct options *options = &session->options;
    guard_tables(session->model.process, session->model.processes,
                 definition_of(options->command, options)->needs(options), options->command->name);
}

bool session_load(struct session *session)
{
    const struct options *options = &session->options;
    if (session->loaded == LOAD_FIRST) session->loaded = load(session, needs_of(options)) ? LOADED : LOAD_FAILED;
    guard_question(session);
    return session->loaded == LOADED;
}

bool session_describe(struct session *session)
{
    return load(session, (struct needs){.captures = true});
}

/* ---- reading again ---- */

/* Notes what another reading of a process's trace lacks, for a message at the end. */
static void note_unread(struct session *session, const struct process *process, const struct selection *again)
{
    const struct process *p = again->process[0];
    uint64_t unread = again->inputs->input[p->input].trace.unread;
    if (!is_of_others(p) && p->events < process->events) unread += process->events - p->events;
    session->inputs.input[process->input].trace.unread += unread;
}

bool session_read_again(struct session *session, const struct process *process, const struct again *again,
                        session_taker *take, void *argument)
{
    struct captures captures = {0}; /* with the names of this reading */
    struct reading reading = {.needs = part_needs(&session->options, again->needs), .jobs = 1, .captures = &captures};
    struct inputs one = {0};
    struct selection chosen;
    struct model model;
    model_init(&model);
    if (again->needs.captures && session->captures.patterns)
        captures_read(&captures, &session->options, true, &session->inputs, &model.names);
    inputs_add_again(&one, &session->inputs.input[process->input])->shift = again->shift;
    inputs_read(&one, &model, &reading);
    model.start = again->start;
    selection_init(&chosen, &session->options, &one, &model);
    part_load(&chosen, &one);
    bool good = chosen.processes == 1;
    if (good) note_unread(session, process, &chosen);
    guard_tables(model.process, model.processes, again->needs, session->options.command->name);
    good = good && take(argument, &chosen, chosen.process[0]);
    guard_question(session);
    selection_free(&chosen);
    inputs_free(&one);
    captures_free(&captures);
    model_free(&model);
    return good;
}

/* ---- the answer ---- */

bool session_begin_text(struct session *session)
{
    const struct options *options = &session->options;
    bool several = options->questions > 1, json = options->format == FORMAT_JSON;
    if (session->collects) return true;
    if (!session->answers && !out_open(&session->out, options->output)) {
        session->status = STATUS_NOTHING;
        return false;
    }
    if (several && json) out_puts(&session->out, session->answers ? ",\n" : "[\n");
    else if (several) out_format(&session->out, "%s%s:\n", session->answers ? "\n" : "", options->command->name);
    session->answers++;
    return true;
}

void session_name_inputs(struct session *session, const struct session *of)
{
    for (size_t i = 0; i < of->inputs.count; i++) {
        if (!of->inputs.input[i].usable) {
            const struct input *input = &of->inputs.input[i];
            emit_input(&session->emit, input->path, NULL, input->rank, false, -1, -1, false);
        }
    }
    for (size_t i = 0; i < of->chosen.processes; i++) {
        const struct process *p = of->chosen.process[i];
        emit_input(&session->emit, p->path, p->kind, p->rank, p->complete, (int64_t)p->events,
                   (int64_t)MIN(p->lost, (uint64_t)INT64_MAX), is_simulated(p));
    }
}

bool session_begin(struct session *session, enum emit_style style)
{
    const struct options *options = &session->options;
    if (!session_begin_text(session)) return false;
    emit_begin(&session->emit, &session->out, options->format, style, options->command);
    emit_rules(&session->emit, options_rules(options));
    if (options_sort_key(options)) emit_sort(&session->emit, options_sort_key(options), options->sort.top);
    session_name_inputs(session, session);
    return true;
}

bool session_ask(struct session *session, enum emit_style style)
{
    return session_load(session) && session_begin(session, style);
}

static void say_list(struct text *text, const char *option, const struct list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        unsigned long long from = list->item[i].from, to = list->item[i].to;
        text_format(text, i ? "," : " %s ", option);
        text_format(text, from == to ? "%llu" : "%llu-%llu", from, to);
    }
}

/* Returns the stage of the inputs that is nearest to a glob; NULL: none is near, or too many are there. */
static const char *nearest_stage(const struct session *session, const char *glob)
{
    enum { MOST_STAGES = 4096 };
    const char **names = NULL, *near = NULL;
    size_t count = 0, capacity = 0;
    struct map known = {0};
    for (size_t i = 0; i < session->chosen.processes; i++) {
        const struct ranges *r = &session->chosen.process[i]->ranges;
        for (size_t k = 0; k < r->table.count && count < MOST_STAGES; k++) {
            if (map_get(&known, r->name[k]) != MAP_NONE || !(r->flags[k] & TFI_RANGE_STAGE)) continue;
            map_put(&known, r->name[k], 1);
            names = mem_grow(names, &capacity, count + 1, sizeof *names);
            names[count++] = model_name(&session->model, r->name[k]);
        }
    }
    near = count ? nearest(glob, names, count) : NULL;
    map_free(&known);
    free(names);
    return near;
}

static void say_nothing_found(const struct session *session)
{
    const struct options *options = &session->options;
    struct text filters = {0};
    for (size_t i = 0; i < options->stage.count; i++) text_format(&filters, " --stage %s", options->stage.text[i]);
    say_list(&filters, "--step", &options->step);
    say_list(&filters, "--cycle", &options->cycle);
    say_list(&filters, "--device", &options->device);
    say_list(&filters, "--stream", &options->stream);
    if (!isnan(options->from)) text_format(&filters, " --from %g", options->from);
    if (!isnan(options->to)) text_format(&filters, " --to %g", options->to);
    const char *near = options->stage.count == 1 ? nearest_stage(session, options->stage.text[0]) : NULL;
    struct text meant = {0};
    if (near) {
        text_puts(&meant, "; did you mean --stage ");
        text_visible(&meant, near, strlen(near));
        text_puts(&meant, "?");
    }
    complain(NULL, "nothing matches%s%s; `tfanalyze %s` without these filters shows everything",
             filters.data ? filters.data : " the filters", meant.data ? meant.data : "", options->command->name);
    text_free(&filters);
    text_free(&meant);
}

void session_end(struct session *session, bool found)
{
    if (!found && is_filtered(&session->options)) say_nothing_found(session);
    session_end_said(session, found);
}

void session_refuse(struct session *session)
{
    session->refused = true;
    session->status = STATUS_USAGE;
    out_forget(&session->out);
}

void session_end_said(struct session *session, bool found)
{
    say_unread(session);
    if (options_sort_key(&session->options) && session->emit.lacks_key) {
        session_refuse(session);
        if (session->options.questions == 1) out_discard(&session->out);
        return;
    }
    session->found += found;
    if (session->options.questions > 1 || session->collects) return;
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
    if (session->options.questions < 2 || !session->answers) return;
    out_puts(&session->out, session->options.format == FORMAT_JSON ? "]\n" : "");
    if (session->refused) {
        out_discard(&session->out);
    } else if (!session->found) {
        out_discard(&session->out);
        session->status = STATUS_NOTHING;
    } else if (!out_close(&session->out)) {
        session->status = STATUS_NOTHING;
    }
}

void session_free(struct session *session)
{
    summaries_free(session);
    if (session->walls) walls_free(session->walls);
    free(session->walls);
    inputs_free(&session->inputs);
    model_free(&session->model);
    captures_free(&session->captures);
    selection_free(&session->chosen);
    if (!session->borrows_options) options_free(&session->options);
    *session = (struct session){.status = session->status};
}
