/* helper.c - tells launchers, compile workers and trackers of a job from the processes that do its work.
 *
 * Only the interpreter's own part of the command line counts, because a script may have any word among its arguments. A
 * forked child has its parent's command line and is the same kind of process. The buffer is static because a process
 * may wake on a small stack. The thread that opens or ends the trace is the only caller.
 */
#include "control/helper.h"

#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "base/files.h"
#include "base/fmt.h"
#include "base/sys.h"

enum kind { NOTHING, MODULE, SCRIPT, CODE, SERVER };

#define HELPER(kind, word, who) {kind, word},
static const struct {
    enum kind kind;
    const char *word;
} helpers[] = {
#include "control/helper.def"
};
#undef HELPER

static char line[1024];

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* The argument behind `argument`, NULL at the end. The last one may be cut. */
static const char *next_argument(const char *argument, const char *end)
{
    argument += strlen(argument) + 1;
    return argument < end ? argument : NULL;
}

/* Finds the module, script or code that an interpreter's command line runs, and puts its name or text in *run. */
static enum kind parse(const char *argument, const char *end, const char **run)
{
    static const struct {
        char letter;
        enum kind kind;
    } last[] = {{'m', MODULE}, {'c', CODE}};
    while ((argument = next_argument(argument, end)) && argument[0] == '-' && argument[1]) {
        const char *option = argument + strlen(argument) - 1; /* the last letter of options that share one dash */
        if (argument[1] == '-') continue;
        for (size_t i = 0; i < sizeof last / sizeof last[0]; i++) {
            if (*option != last[i].letter) continue;
            *run = next_argument(argument, end);
            return *run ? last[i].kind : NOTHING;
        }
        if (strcmp(argument, "-X") == 0 || strcmp(argument, "-W") == 0) argument = next_argument(argument, end);
        if (!argument) break;
    }
    *run = argument;
    return argument ? SCRIPT : NOTHING;
}

static bool is_match(enum kind kind, const char *run, const char *word)
{
    size_t length = strlen(run), wanted = strlen(word);
    switch (kind) {
    case MODULE: return begins(run, word) && (run[wanted] == 0 || run[wanted] == '.');
    case CODE:
    case SERVER: return begins(run, word);
    case SCRIPT:
        return length >= wanted && strcmp(run + length - wanted, word) == 0 &&
               (length == wanted || run[length - wanted - 1] == '/');
    case NOTHING: break;
    }
    return false;
}

/* `is_child`: a fork made the process. */
static bool is_helper(const char *path, bool is_child)
{
    const char *run = NULL;
    ssize_t bytes = tfi_read_file(path, line, sizeof line);
    if (bytes <= 0) return false;
    enum kind kind = parse(line, line + bytes, &run);
    for (size_t i = 0; kind != NOTHING && i < sizeof helpers / sizeof helpers[0]; i++)
        if ((helpers[i].kind == kind || (helpers[i].kind == SERVER && kind == CODE && !is_child)) &&
            is_match(kind, run, helpers[i].word))
            return true;
    return false;
}

bool tfi_is_helper(bool is_child)
{
    return is_helper("/proc/self/cmdline", is_child);
}

/* True if the process was started with this library. Reads only the first 64 KiB of its environment. */
static bool has_library(const char *path)
{
    enum { MOST = 65536 };
    static char *variables; /* mapped: what lies in the library counts against a program's ulimit -d */
    if (!tfi_map_once(&variables, MOST)) return false;
    ssize_t bytes = tfi_read_file(path, variables, MOST);
    const char *end = variables + bytes;
    for (const char *v = variables; bytes > 0 && v; v = next_argument(v, end))
        if (begins(v, "LD_PRELOAD=") && strstr(v, "libtfinject")) return true;
    return false;
}

/* True if multiprocessing started this process for a Python of the job; the parent may be gone by now. */
static bool is_of_multiprocessing(void)
{
    const char *run = NULL;
    ssize_t bytes = tfi_read_file("/proc/self/cmdline", line, sizeof line);
    return bytes > 0 && parse(line, line + bytes, &run) == CODE && begins(run, "from multiprocessing.");
}

bool tfi_is_first(void)
{
    if (is_of_multiprocessing()) return false;
    char path[40], program[256];
    unsigned parent = (unsigned)getppid();
    tfi_fmt(path, sizeof path, "/proc/%u/exe", parent);
    ssize_t bytes = tfi_readlink(path, program, sizeof program - 1);
    if (bytes <= 0) return true;
    program[bytes] = 0;
    const char *name = strrchr(program, '/');
    if (!name || !begins(name, "/python")) return true;
    tfi_fmt(path, sizeof path, "/proc/%u/environ", parent);
    if (!has_library(path)) return true;
    tfi_fmt(path, sizeof path, "/proc/%u/cmdline", parent);
    return is_helper(path, false);
}
