/* tensorboard.c - writes a directory for TensorBoard's PyTorch profiler plugin: one file per process.
 *
 * The plugin reads files whose names end in .pt.trace.json.gz and parses the names as HOST_PID.rankR.TIME. The part
 * before the time is the worker; the worker's last _number is the process on a host. The files of one worker are
 * spans, ordered by time.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "ask/choice.h"
#include "commands/export/beside.h"
#include "commands/session.h"
#include "write/export/export.h"

struct tensorboard {
    struct session *session;
    struct beside beside;
    char **path; /* files written */
    size_t paths;
};

/* ---- names ---- */

static void add_host(struct text *text, const struct process *process)
{
    const char *host = process->host ? process->host : "worker";
    for (; *host; host++) {
        bool plain = isascii((unsigned char)*host) && (isalnum((unsigned char)*host) || strchr("-.", *host));
        text_add(text, plain ? host : "-", 1);
    }
}

static bool is_taken(const struct tensorboard *t, const char *path)
{
    for (size_t i = 0; i < t->paths; i++)
        if (strcmp(t->path[i], path) == 0) return true;
    return false;
}

/* Adds a nanosecond to the time in the name if two recordings of one worker began at the same moment. */
static char *name_file(const struct tensorboard *t, const struct process *process)
{
    struct text worker = {0};
    char *path = NULL;
    int64_t time = process->has_time && process->first > 0 ? process->first : 0;
    add_host(&worker, process);
    if (process->pid >= 0) text_format(&worker, "_%lld", (long long)process->pid);
    if (process->rank >= 0) text_format(&worker, ".rank%lld", (long long)process->rank);
    do {
        free(path);
        path = string_format("%s/%s.%019lld.pt.trace.json.gz", t->beside.directory, worker.data, (long long)time++);
    } while (is_taken(t, path));
    text_free(&worker);
    return path;
}

/* ---- files ---- */

/* Writes the file of a process; no file if the filters leave no events. */
static bool write_process(struct tensorboard *t, const struct process *process)
{
    struct out out;
    char *path = name_file(t, process);
    bool good = out_open_in(&out, t->beside.fd, path, FILE_SHARED);
    uint64_t events = good ? export_file(&t->session->chosen, process, &out, "tensorboard") : 0;
    if (!good || (!events && is_filtered(&t->session->options))) {
        out_discard(&out);
    } else {
        good = out_close(&out);
        t->path[t->paths++] = good ? path : NULL;
        t->paths -= !good;
        path = good ? NULL : path;
    }
    free(path);
    return good;
}

static void print_paths(struct tensorboard *t)
{
    struct out *out = &t->session->out;
    if (!out_open(out, NULL)) return;
    for (size_t i = 0; i < t->paths; i++) {
        struct text line = {0};
        text_visible(&line, t->path[i], strlen(t->path[i]));
        text_puts(&line, "\n");
        out_write(out, line.data, line.length);
        text_free(&line);
    }
    session_end(t->session, t->paths != 0);
    if (t->paths)
        complain(NULL, "tensorboard --logdir %s  shows them (pip install tensorboard torch-tb-profiler)",
                 t->beside.directory);
}

void cmd_export_tensorboard(struct session *session)
{
    struct tensorboard t = {.session = session};
    if (!session_load(session)) return;
    t.path = mem_zero(session->chosen.processes, sizeof *t.path);
    bool good = beside_open(&t.beside, session, "tensorboard");
    for (size_t i = 0; i < session->chosen.processes && good; i++) good = write_process(&t, session->chosen.process[i]);
    if (good) print_paths(&t);
    else session->status = 1;
    for (size_t i = 0; i < t.paths; i++) free(t.path[i]);
    beside_close(&t.beside);
    free(t.path);
}
