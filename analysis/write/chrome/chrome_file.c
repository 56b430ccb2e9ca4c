/* chrome_file.c - writes the events and the members of a file into a Chrome trace; what is no JSON is replaced. */
#include "write/chrome/chrome_file.h"

#include <string.h>

#include "model/model.h"

void put_writer(struct out *out, const char *artefact, const struct name *stage, int64_t rank)
{
    out_puts(out, "\"tfinject\": {\"artefact\": ");
    out_json_string(out, artefact, strlen(artefact));
    if (stage) {
        out_puts(out, ", \"stage\": ");
        out_json_string(out, stage->text, stage->length);
    }
    out_puts(out, ", \"rank\": ");
    if (rank >= 0) out_number(out, (uint64_t)rank);
    else out_puts(out, "null");
    out_puts(out, ", \"writer\": \"tfanalyze " TFI_VERSION "\"}");
}

static void begin_file(void *context, const struct process *process, int64_t pid)
{
    struct chrome_file *file = context;
    (void)pid;
    out_puts(file->out, "{");
    put_writer(file->out, file->artefact, file->stage, process->rank);
}

static void begin_events(struct chrome_file *file)
{
    if (!file->in_events) out_puts(file->out, ",\n\"traceEvents\": [");
    file->in_events = true;
}

static void write_chrome_event(void *context, const struct event *event)
{
    struct chrome_file *file = context;
    struct slice valid = event->has & HAS_CLEAN ? event->raw : strict_json(&file->strict, event->raw);
    begin_events(file);
    out_puts(file->out, file->written++ ? ",\n" : "\n");
    out_write(file->out, valid.at, valid.length);
}

static void write_chrome_member(void *context, struct slice key, struct slice value)
{
    struct chrome_file *file = context;
    struct slice valid = strict_json(&file->strict, value);
    out_puts(file->out, file->in_events ? "\n],\n" : ",\n");
    file->in_events = false;
    out_json_string(file->out, key.at, key.length);
    out_puts(file->out, ": ");
    out_write(file->out, valid.at, valid.length);
}

/* Readers expect traceEvents even if there are none. */
static void end_file(void *context)
{
    struct chrome_file *file = context;
    if (!file->written) begin_events(file);
    out_puts(file->out, file->in_events ? "\n]}\n" : "}\n");
    strict_free(&file->strict);
}

struct event_taker chrome_taker(struct chrome_file *file)
{
    return (struct event_taker){.context = file,
                                .begin = begin_file,
                                .event = write_chrome_event,
                                .end = end_file,
                                .member = write_chrome_member,
                                .is_drawn = true};
}
