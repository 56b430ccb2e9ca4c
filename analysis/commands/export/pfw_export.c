/* pfw_export.c - writes traces in dftracer's format, for dftracer's own tools.
 *
 * The processes come one after the other (each.h), and their times are shifted to one clock.
 */
#include "commands/export/each.h"
#include "write/dftracer/pfw.h"

static void write_all(struct pfw *file, const struct each *each)
{
    struct event_taker taker = pfw_taker(file);
    const struct each_file all = {"pfw", &taker, &file->shift, &file->out->failed};
    each_write(each, &all);
    if (file->left_out)
        complain(NULL, "%llu arrows, counters and other events are left out: a dftracer trace has no form for them",
                 (unsigned long long)file->left_out);
}

void cmd_export_pfw(struct session *session)
{
    struct pfw file;
    struct each each;
    if (!each_load(session)) return;
    each_begin(&each, session);
    if (out_open(&session->out, session->options.output)) {
        pfw_open(&file, &session->out);
        write_all(&file, &each);
        uint64_t events = file.events;
        pfw_close(&file);
        session_end(session, events || !is_filtered(&session->options));
    } else {
        session->status = 1;
    }
    each_end(&each);
}
