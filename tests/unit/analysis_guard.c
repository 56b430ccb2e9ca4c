/* analysis_guard.c - a question fails, and names the table, once the needs of a table that it reads are taken from it.
 *
 * The linker wraps guard_tables(). The inputs are still read with all needs, as if another question of the run had them.
 */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define main tfanalyze_main
#include "main.c"
#undef main

#include "model/needs/guard.h"
#include "unit.h"

#ifdef __SANITIZE_ADDRESS__
enum { GUARDED = 1 };
#else
enum { GUARDED = 0 };
#endif

static const struct guarded {
    const char *name;
    struct needs needs;
} tables[] = {
#define TABLE(first, last, ...) {#first, {__VA_ARGS__}},
#include "model/needs/tables.def"
#undef TABLE
};

/* Questions that read what no command reads without options. */
static const char *const lines[] = {"memory --layout leaks",  "memory --layout process", "memory --layout peaks",
                                    "ops --group-by stack=5", "export et --pid 100",     "launches --rules hta",
                                    "kinds --rules tracelens"};

static const char events[] =
    "{\"traceEvents\": [\n"
    "{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"ProfilerStep#1\", \"pid\": 1, \"tid\": 1, \"ts\": 0, "
    "\"dur\": "
    "100},\n"
    "{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", \"pid\": 1, \"tid\": 1, \"ts\": 20, "
    "\"dur\": 5, \"args\": {\"correlation\": 7}},\n"
    "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"add\", \"pid\": 0, \"tid\": 7, \"ts\": 30, \"dur\": 20, "
    "\"args\": "
    "{\"correlation\": 7, \"device\": 0, \"stream\": 7}},\n"
    "{\"ph\": \"X\", \"cat\": \"gpu_memcpy\", \"name\": \"Memcpy HtoD\", \"pid\": 0, \"tid\": 7, \"ts\": 60, \"dur\": "
    "9, "
    "\"args\": {\"bytes\": 4096, \"device\": 0, \"stream\": 7}}]}\n";

static struct needs missing;

void __real_guard_tables(const struct process *process, size_t count, struct needs needs, const char *question);
void __wrap_guard_tables(const struct process *process, size_t count, struct needs needs, const char *question);

void __wrap_guard_tables(const struct process *process, size_t count, struct needs needs, const char *question)
{
#define NEED(name, meaning) needs.name &= !missing.name;
#include "model/needs/needs.def"
#undef NEED
    __real_guard_tables(process, count, needs, question);
}

/* Asks a trace of ours and a Kineto trace, with stderr in `said`. */
static void ask_both(const char *line, char *trace, char *said, size_t size)
{
    char words[256], *argv[16] = {"tfanalyze"}, *rest;
    int argc = 1, out[2];
    snprintf(words, sizeof words, "%s", line);
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) argv[argc++] = word;
    argv[argc++] = trace;
    argv[argc++] = "guard.json";
    ck_assert_int_eq(pipe(out), 0);
    pid_t child = fork();
    if (!child) {
        dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
        dup2(out[1], STDERR_FILENO);
        _exit(tfanalyze_main(argc, argv));
    }
    close(out[1]);
    size_t length = 0;
    ssize_t got;
    while ((got = read(out[0], said + length, size - 1 - length)) > 0) length += (size_t)got;
    said[length] = 0;
    close(out[0]);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
}

/* Returns whether the line fails because it reads the table. */
static bool is_caught(const struct guarded *table, const char *line)
{
    static char said[1 << 16], expected[256];
    char trace[4096];
    const char *tests = getenv("TFI_TEST_DIR");
    snprintf(expected, sizeof expected, "` reads `%s` of a process, which its needs lack\n", table->name);
    snprintf(trace, sizeof trace, "%s/data/v1/whole.tfr", tests ? tests : "tests");
    ask_both(line, trace, said, sizeof said);
    return strstr(said, expected);
}

/* Returns whether some question reads the table. */
static bool is_read(const struct guarded *table)
{
    static const struct options options = {.from = NAN, .to = NAN};
    for (const struct command *c = commands; c->name; c++) {
        bool is_asked = c->takes & ANSWER && !(c->takes & (DIFF | COMMAND_LINE));
        if (is_asked && needs_meet(table->needs, c->by[RULES_EXACT].needs(&options)) && is_caught(table, c->name))
            return true;
    }
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++)
        if (is_caught(table, lines[i])) return true;
    return false;
}

/* Questions that read these tables read another one with the same needs before; a report alone reads `grants`, and the
 * loading alone `python_call`; only memory snapshots have a `segment`. */
static bool is_hidden(const struct guarded *table)
{
    static const char *const hidden[] = {"range_inputs", "stage_times", "args", "grants", "python_call", "segment"};
    for (size_t i = 0; i < ARRAY_SIZE(hidden); i++)
        if (strcmp(table->name, hidden[i]) == 0) return true;
    return false;
}

START_TEST(a_need_that_is_taken_away)
{
    const struct guarded *table = &tables[_i];
    bool any = false;
    if (is_hidden(table)) return;
    missing = table->needs;
#define NEED(name, meaning) any |= missing.name;
#include "model/needs/needs.def"
#undef NEED
    FILE *file = fopen("guard.json", "w");
    ck_assert(file && fputs(events, file) >= 0 && fclose(file) == 0);
    ck_assert_msg(is_read(table) == (GUARDED && any), "no question is stopped from reading `%s`", table->name);
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("guard");
    tcase_add_loop_test(tests, a_need_that_is_taken_away, 0, GUARDED ? ARRAY_SIZE(tables) : 1);
    return unit_run(tests);
}
