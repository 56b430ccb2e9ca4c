/* pfw_export.c - writes traces in dftracer's format, for dftracer's own tools.
 *
 * The processes come one after the other (each.h), and their times are shifted to one clock.
 */
#include "commands/export/each.h"
#include "write/dftracer/pfw.h"

void cmd_export_pfw(struct session *session)
{
    struct pfw file;
    struct each each;
    if (!each_load(session) || !each_begin(&each, session)) return;
    pfw_open(&file, &session->out);
    each_write(&each, (struct each_file){"pfw", pfw_taker(&file), &file.shift, &file.out->failed, 0});
    if (file.left_out)
        complain(NULL, "%llu arrows, counters and other events are left out: a dftracer trace has no form for them",
                 (unsigned long long)file.left_out);
    uint64_t events = file.events;
    pfw_close(&file);
    each_end(&each, events);
}
