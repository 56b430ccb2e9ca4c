/* pftrace_export.c - writes traces as a Perfetto trace, one rank or many.
 *
 * The processes come one after the other (each.h), and their times are shifted to one clock.
 */
#include <unistd.h>

#include "commands/export/each.h"
#include "write/pftrace/pftrace.h"

static uint64_t write_all(struct pftrace *file, const struct each *each)
{
    struct event_taker taker = pftrace_taker(file);
    const struct each_file all = {"pftrace", &taker, &file->shift, &file->failed};
    uint64_t events = each_write(each, &all);
    if (file->unknown) {
        complain(NULL, "%llu events are left out: a Perfetto trace has no form for their phase",
                 (unsigned long long)file->unknown);
        session_spoil(each->session);
    }
    return events;
}

void cmd_export_pftrace(struct session *session)
{
    struct pftrace file;
    struct each each;
    if (!session->options.output && isatty(STDOUT_FILENO)) {
        complain(NULL, "export pftrace writes bytes that are not text; choose a file with --output FILE");
        session->status = 2;
        return;
    }
    if (!each_load(session)) return;
    each_begin(&each, session);
    if (out_open(&session->out, session->options.output)) {
        pftrace_open(&file, &session->out);
        uint64_t events = write_all(&file, &each);
        session->out.failed |= file.failed;
        session_end(session, events || !is_filtered(&session->options));
        pftrace_close(&file);
    } else {
        session->status = 1;
    }
    each_end(&each);
}
