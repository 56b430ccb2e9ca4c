/* analysis_once.c - all questions of a run share one attribution of each process. The linker wraps attribute(). */

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define main tfanalyze_main
#include "main.c"
#undef main

#include "ask/attribute.h"
#include "unit.h"

enum { TRACES = 2 };
static const char *const path[TRACES] = {"once-0.json", "once-1.json"};
static unsigned made[TRACES];

void __real_attribute(struct attribution *attribution, const struct process *process, struct needs needs);
void __wrap_attribute(struct attribution *attribution, const struct process *process, struct needs needs);

void __wrap_attribute(struct attribution *attribution, const struct process *process, struct needs needs)
{
    for (int i = 0; i < TRACES; i++) made[i] += strcmp(process->path, path[i]) == 0;
    __real_attribute(attribution, process, needs);
}

static void write_trace(int rank)
{
    FILE *file = fopen(path[rank], "w");
    ck_assert(file);
    fprintf(file, "{\"distributedInfo\": {\"rank\": %d, \"world_size\": %d}, \"traceEvents\": [\n", rank, TRACES);
    fputs(
        "{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"stage\", \"pid\": 1, \"tid\": 1, \"ts\": 0, "
        "\"dur\": 100},\n"
        "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::add\", \"pid\": 1, \"tid\": 1, \"ts\": 10, \"dur\": 50,"
        " \"args\": {\"External id\": 1}},\n"
        "{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", \"pid\": 1, \"tid\": 1, \"ts\": 20,"
        " \"dur\": 5, \"args\": {\"correlation\": 7, \"External id\": 1}},\n"
        "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"add\", \"pid\": 0, \"tid\": 7, \"ts\": 30, \"dur\": 20,"
        " \"args\": {\"correlation\": 7, \"External id\": 1, \"device\": 0, \"stream\": 7}}]}\n",
        file);
    ck_assert(fclose(file) == 0);
}

START_TEST(one_attribution_serves_all_questions)
{
    char questions[1024] = "";
    for (const struct command *c = commands; c->name; c++)
        if (c->takes & TOGETHER) {
            if (*questions) strcat(questions, ",");
            strcat(questions, c->name);
        }
    char *argv[] = {"tfanalyze",  questions, "--format",      "json",          "--output", "/dev/null",
                    "--operator", "add",     (char *)path[0], (char *)path[1], NULL};
    for (int i = 0; i < TRACES; i++) write_trace(i);
    int status = tfanalyze_main((int)ARRAY_SIZE(argv) - 1, argv);
    for (int i = 0; i < TRACES; i++) unlink(path[i]);
    ck_assert_int_eq(status, 3); /* `hang` says what a PyTorch trace does not tell */
    for (int i = 0; i < TRACES; i++) ck_assert_uint_eq(made[i], 1);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("once");
    tcase_add_test(tcase, one_attribution_serves_all_questions);
    return unit_run(tcase);
}
