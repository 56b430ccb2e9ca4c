/* pftrace_export.c - writes traces as a Perfetto trace, one rank or many.
 *
 * The processes come one after the other (each.h), and their times are shifted to one clock.
 */
#include <unistd.h>

#include "commands/export/each.h"
#include "write/pftrace/pftrace.h"

void cmd_export_pftrace(struct session *session)
{
    struct pftrace file;
    struct each each;
    if (!session->options.output && isatty(STDOUT_FILENO)) {
        complain(NULL, "export pftrace writes bytes that are not text; choose a file with --output FILE");
        session->status = STATUS_USAGE;
        return;
    }
    if (!each_load(session) || !each_begin(&each, session)) return;
    pftrace_open(&file, &session->out);
    uint64_t events =
        each_write(&each, (struct each_file){"pftrace", pftrace_taker(&file), &file.shift, &file.failed, 0});
    if (file.unknown) {
        complain(NULL, "%llu events are left out: a Perfetto trace has no form for their phase",
                 (unsigned long long)file.unknown);
        session_spoil(session);
    }
    session->out.failed |= file.failed;
    each_end(&each, events);
    pftrace_close(&file);
}
