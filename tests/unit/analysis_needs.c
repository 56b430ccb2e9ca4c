/* analysis_needs.c - with the address sanitizer a question that reads what it does not need fails, and is named. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "model/needs/guard.h"
#include "unit.h"

#ifdef __SANITIZE_ADDRESS__
enum { GUARDED = 1 };
#else
enum { GUARDED = 0 };
#endif

static struct process *process; /* three of them; gcc does not check accesses to static ones */

/* Lets a question read samples of the second process, in a child. Returns whether it could; `said` gets its stderr. */
static bool can_read_samples(struct needs needs, char *said, size_t size)
{
    int out[2], status;
    ck_assert_int_eq(pipe(out), 0);
    pid_t child = fork();
    if (!child) {
        dup2(out[1], STDERR_FILENO);
        guard_tables(process, 2, needs, "longest");
        guard_lift(&process[1]);
        guard_again(&process[1]);
        volatile size_t samples = process[1].samples;
        _exit(samples != 0);
    }
    close(out[1]);
    FILE *from = fdopen(out[0], "r");
    said[fread(said, 1, size - 1, from)] = 0;
    fclose(from);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return status == 0;
}

START_TEST(a_table_that_was_not_asked_for)
{
    static char said[1 << 16];
    ck_assert(can_read_samples((struct needs){.samples = true}, said, sizeof said));
    ck_assert_str_eq(said, "");
    ck_assert_int_eq(can_read_samples((struct needs){.marks = true, .calls = true}, said, sizeof said), !GUARDED);
    ck_assert_int_eq(strstr(said, "tfanalyze: `longest` reads `sample` of a process, which its needs lack\n") != NULL,
                     GUARDED);
}
END_TEST

START_TEST(a_table_after_the_answer)
{
    guard_tables(process, 2, (struct needs){0}, "longest");
    guard_lift(&process[0]);
    guard_lift(&process[1]);
    guard_again(&process[2]); /* not of these two */
    ck_assert_uint_eq(process[0].samples + process[1].samples + process[2].samples, 0);
}
END_TEST

/* A new table without a row does not pass: the rows leave no more than the padding between members free. */
START_TEST(every_table_has_a_row)
{
    static const struct {
        const char *name;
        size_t from, to;
    } row[] = {
#define TABLE(first, last, ...)                                                                                        \
    {#first, offsetof(struct process, first), offsetof(struct process, last) + sizeof((struct process *)0)->last},
#include "model/needs/tables.def"
#undef TABLE
    };
    for (size_t i = 1; i < sizeof row / sizeof *row; i++)
        ck_assert_msg(row[i].from >= row[i - 1].to && row[i].from - row[i - 1].to < sizeof(void *),
                      "a table before `%s` has no row", row[i].name);
    ck_assert_uint_lt(sizeof(struct process) - row[sizeof row / sizeof *row - 1].to, sizeof(void *));
}
END_TEST

int main(void)
{
    process = calloc(3, sizeof *process);
    TCase *tests = tcase_create("needs");
    tcase_add_test(tests, a_table_that_was_not_asked_for);
    tcase_add_test(tests, a_table_after_the_answer);
    tcase_add_test(tests, every_table_has_a_row);
    int failed = unit_run(tests);
    free(process);
    return failed;
}
