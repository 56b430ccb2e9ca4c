/* page.c - asks the questions of a page, and writes their answers and messages into it as they are.
 *
 * A run is read once for all its questions. The figures of a page are those of the commands, because it has their JSON.
 */
#include "commands/page/page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ask/choice.h"
#include "ask/diff/timing_file.h"
#include "base/command.h"
#include "commands/memory/memory_pictures.h"
#include "commands/page/page_flames.h"
#include "commands/page/page_lanes.h"
#include "commands/page/page_memory.h"
#include "write/page/page_file.h"

/* A question of a page. */
struct part {
    const char *id;      /* what the script knows it by */
    const char *command; /* its name */
    const char *words;   /* the options that ask the same on a command line */
    const char *sort;    /* the key that decides which rows stay; NULL: all rows stay */
    uint64_t top;        /* how many; 0: all */
    uint64_t slowest;
    enum diff_by by;
};

enum { MOST_ROWS = 500, MOST_SLOWEST = 20, PICTURES = 8 };

static const struct part run_parts[] = {
    {.id = "info", .command = "info"},
    {.id = "budget", .command = "budget"},
    {.id = "advise", .command = "advise"},
    {.id = "startup", .command = "startup", .sort = "own_us", .top = MOST_ROWS},
    {.id = "stages", .command = "stages"},
    {.id = "slowest", .command = "stages", .words = " --slowest 20", .slowest = MOST_SLOWEST},
    {.id = "ops",
     .command = "ops",
     .words = " --group-by name,shapes,stack=4",
     .sort = "self_cpu_time_total",
     .top = MOST_ROWS},
    {.id = "breakdown", .command = "breakdown", .sort = "total_us", .top = MOST_ROWS},
    {.id = "roofline", .command = "roofline", .sort = "device_us", .top = MOST_ROWS},
    {.id = "hotspots", .command = "hotspots", .words = " --by line", .sort = "wall_us", .top = MOST_ROWS},
    {.id = "timeline", .command = "timeline"},
    {.id = "comm", .command = "comm", .sort = "duration_us", .top = MOST_ROWS},
    {.id = "stragglers", .command = "stragglers", .sort = "late_us", .top = MOST_ROWS},
    {.id = "memory", .command = "memory", .words = " --layout peaks"},
    {.id = "io", .command = "io", .words = " --layout files", .sort = "total_us", .top = MOST_ROWS},
    {.id = "clocks", .command = "clocks"},
};

static const struct part side_parts[] = {
    {.id = "info", .command = "info"},
    {.id = "budget", .command = "budget"},
    {.id = "advise", .command = "advise"},
    {.id = "stages", .command = "stages"},
};

static const struct part diff_parts[] = {
    {.id = "finding", .command = "diff", .words = " --by finding", .by = BY_FINDING},
    {.id = "stage", .command = "diff", .words = " --by stage", .sort = "change_us", .by = BY_STAGE},
    {.id = "op", .command = "diff", .words = " --by op", .top = MOST_ROWS, .by = BY_OP},
    {.id = "kernel", .command = "diff", .words = " --by kernel", .top = MOST_ROWS, .by = BY_KERNEL},
};

static const struct command *command_of(const struct options *options, const char *name)
{
    const struct command *command = options->commands;
    while (strcmp(command->name, name) != 0) command++;
    return command;
}

/* ---- one question ---- */

static void choose_rows(struct options *o, const struct part *part)
{
    bool sorted = part->sort && !(o->command->takes & DIFF);
    o->sort = (struct sort_by){.key = sorted ? (char *)part->sort : NULL, .top = sorted ? part->top : 0};
    if (o->command->takes & TORCH_TABLE) o->sort.torchs = SORT_SELF_CPU_TIME_TOTAL;
    o->top = sorted ? 0 : part->top;
    o->slowest = part->slowest;
    o->memory_layout = MEMORY_PEAKS;
    o->by = part->by;
}

/* Writes the lines of messages as a list of texts. */
static void put_said(struct out *out, const struct text *said)
{
    const char *at = said->data ? said->data : "", *end;
    out_puts(out, "[");
    for (bool more = false; (end = strchr(at, '\n')) != NULL; more = true, at = end + 1) {
        out_puts(out, more ? ", " : "");
        out_json_string(out, at, (size_t)(end - at));
    }
    out_puts(out, "]");
}

static void put_part(struct out *out, struct session *session, const struct part *part)
{
    struct options *o = &session->options;
    struct text said = {0};
    o->command = command_of(o, part->command);
    choose_rows(o, part);
    out_memory(&session->out);
    complain_into(&said);
    definition_of(o->command, o)->answer(session);
    complain_into(NULL);
    out_puts(out, "{\"id\": \"");
    out_puts(out, part->id);
    out_puts(out, "\", \"asked\": \"tfanalyze ");
    out_puts(out, part->command);
    out_puts(out, part->words ? part->words : "");
    out_puts(out, "\", \"top\": ");
    out_number(out, part->top);
    out_puts(out, ", \"said\": ");
    put_said(out, &said);
    out_puts(out, ", \"answer\": ");
    if (session->out.used) out_write(out, session->out.buffer, session->out.used);
    else out_puts(out, "null");
    out_puts(out, "}");
    out_discard(&session->out);
    text_free(&said);
}

static void put_parts(struct out *out, struct session *session, const struct part *parts, size_t count)
{
    out_puts(out, "[");
    for (size_t i = 0; i < count; i++) {
        out_puts(out, i ? ",\n" : "\n");
        put_part(out, session, &parts[i]);
    }
    out_puts(out, "]");
}

/* ---- a session of its own ---- */

/* Begins a session that asks questions of some inputs. Its answers stay in memory. */
static void begin_questions(struct session *own, const struct options *of, const struct strings_list *inputs,
                            const struct part *parts, size_t count)
{
    struct options *o = &own->options;
    *own = (struct session){.options = *of, .borrows_options = true, .collects = true};
    o->question = mem_zero(count, sizeof *o->question);
    o->questions = 0;
    o->inputs = *inputs;
    o->html = o->output = NULL;
    o->format = FORMAT_JSON;
    o->group_ops = (struct group_ops){.shapes = true, .stack = 4};
    o->spot_by = SPOT_LINE;
    o->layout = LAYOUT_FILES;
    o->memory_layout = MEMORY_HTML; /* needs all that MEMORY_PEAKS does, and categories */
    o->slowest = MOST_SLOWEST;      /* while the inputs are read: one of the questions needs what it says */
    for (size_t i = 0; i < count; i++) {
        const struct command *command = command_of(o, parts[i].command);
        bool known = false;
        for (size_t k = 0; k < o->questions; k++) known |= o->question[k] == command;
        if (!known) o->question[o->questions++] = command;
    }
    o->command = o->question[0];
}

static void end_questions(struct session *own)
{
    const struct command **question = own->options.question;
    session_free(own);
    free(question);
}

static void put_lanes(struct out *out, struct session *own)
{
    lanes_write(out, &own->chosen);
}

static void put_flames(struct out *out, struct session *own)
{
    page_flames_write(out, &own->chosen);
}

static void put_memory(struct out *out, struct session *own)
{
    struct pictures pictures;
    memory_pictures(own, &pictures, PICTURES);
    page_memory_put(out, own, &pictures);
    pictures_free(&pictures);
}

/* Writes a picture, which reads what a question needs; null where nothing is there. */
static void put_picture(struct out *out, struct session *own, const char *name, const char *question,
                        void (*write)(struct out *out, struct session *own))
{
    own->options.command = command_of(&own->options, question);
    own->options.memory_layout = MEMORY_HTML;
    out_format(out, ", \"%s\": ", name);
    if (session_load(own)) write(out, own);
    else out_puts(out, "null");
}

static void put_answers(struct out *out, struct session *own, const struct part *parts, size_t count)
{
    out_puts(out, "{\"parts\": ");
    put_parts(out, own, parts, count);
    if (parts == run_parts) {
        put_picture(out, own, "timeline", "advise", put_lanes);
        put_picture(out, own, "flames", "hotspots", put_flames);
        put_picture(out, own, "memory", "memory", put_memory);
    }
    out_puts(out, "}");
}

/* Writes what one run answers. Returns false, after a message, if it has nothing usable. */
static bool put_run(struct out *out, struct session *session, const struct strings_list *inputs,
                    const struct part *parts, size_t count)
{
    struct session own;
    begin_questions(&own, &session->options, inputs, parts, count);
    bool good = session_load(&own);
    if (good) put_answers(out, &own, parts, count);
    if (own.status) session->status = own.status;
    end_questions(&own);
    return good;
}

/* ---- the file ---- */

/* False, after a message, with an option that some question of a page has no meaning for. */
static bool takes_options(struct session *session)
{
    const struct options *o = &session->options;
    const char *why = o->output               ? "--output names other files: give one of the two"
                      : !isnan(o->gate)       ? "a page is of two runs, and a gate judges more"
                      : o->by != BY_NOT_GIVEN ? "a page has stages, operators and kernels, and no --by"
                      : is_filtered(o) || o->top
                          ? "a page is of whole processes: of the filters it takes --rank and --pid"
                      : o->format != FORMAT_TEXT ? "a page has one format, and no --format"
                      : o->names != NAMES_FULL   ? "a page has full names, and shows them short"
                                                 : NULL;
    if (!why) return true;
    complain(NULL, "--html: %s", why);
    session->status = STATUS_USAGE;
    return false;
}

/* False, after a message, with a timing.json: it has no budget. */
static bool has_traces(struct session *session)
{
    const struct strings_list *inputs = &session->options.inputs;
    for (size_t i = 0; i < inputs->count; i++) {
        if (!is_timing_file(inputs->text[i])) continue;
        complain(NULL, "--html: %s is a timing.json, which has no budget and no findings", inputs->text[i]);
        session->status = STATUS_USAGE;
        return false;
    }
    return true;
}

static void write_file(struct session *session, const struct out *data)
{
    if (!out_open(&session->out, session->options.html)) {
        session->status = STATUS_NOTHING;
        return;
    }
    page_write(&session->out, data->buffer, data->used);
    if (!out_close(&session->out)) session->status = STATUS_NOTHING;
}

bool page_collect(struct session *session, struct out *data)
{
    page_begin(data, "run");
    bool good = put_run(data, session, &session->options.inputs, run_parts, ARRAY_SIZE(run_parts));
    out_puts(data, "], \"parts\": []}");
    return good;
}

void page_of_run(struct session *session)
{
    struct out data;
    if (!takes_options(session)) return;
    out_memory(&data);
    if (page_collect(session, &data)) write_file(session, &data);
    out_discard(&data);
}

void page_of_two(struct session *session)
{
    const struct strings_list *both = &session->options.inputs;
    struct out data;
    bool good = true;
    if (!takes_options(session) || !has_traces(session)) return;
    out_memory(&data);
    page_begin(&data, "diff");
    for (size_t i = 0; i < both->count && good; i++) {
        const struct strings_list one = {&both->text[i], 1};
        out_puts(&data, i ? ",\n" : "\n");
        good = put_run(&data, session, &one, side_parts, ARRAY_SIZE(side_parts));
    }
    if (good) {
        struct session own;
        begin_questions(&own, &session->options, both, diff_parts, ARRAY_SIZE(diff_parts));
        out_puts(&data, "], \"parts\": ");
        put_parts(&data, &own, diff_parts, ARRAY_SIZE(diff_parts));
        out_puts(&data, "}");
        good = own.status == 0 || own.status == STATUS_PARTIAL;
        if (own.status) session->status = own.status;
        end_questions(&own);
    }
    if (good) write_file(session, &data);
    out_discard(&data);
}
