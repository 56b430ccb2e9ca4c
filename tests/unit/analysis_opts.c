/* analysis_opts.c - the command line: accepted and refused options, and the help from the same table. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/command.h"
#include "base/opts.h"
#include "unit.h"

/* The commands as main.c has them, without their functions. */
static const struct command commands[] = {
#define COMMAND(word, function, answers, keys_of_row, flags, needs, reduction, rules, filters)                         \
    {.name = word, .keys = keys_of_row, .refuses = filters, .takes = flags},
#define GROUP(question)
#include "commands.def"
#undef COMMAND
    {0}};

static struct options options;

static bool is_command(const struct command *command, const char *name)
{
    return strcmp(command->name, name) == 0;
}

/* Parses a line of words separated by spaces. */
static bool parse(const char *line)
{
    char *words[32] = {strdup("tfanalyze")}, *copy = strdup(line), *rest = copy, *word;
    int count = 1;
    while ((word = strsep(&rest, " ")) != NULL)
        if (*word) words[count++] = word;
    bool good = options_parse(&options, commands, count, words);
    free(words[0]);
    free(copy);
    return good;
}

START_TEST(everything_at_once)
{
    ck_assert(parse("stages run --format=json --output x.json -j4 --rank 1,3-5 --pid=7 --stage a* --stage b --from 1.5 "
                    "--to 2 --top 9 --exclusive rank=2:dir -- --odd"));
    ck_assert(is_command(options.command, "stages") && options.format == FORMAT_JSON && options.jobs == 4);
    ck_assert_str_eq(options.output, "x.json");
    ck_assert(list_has(&options.rank, 1) && !list_has(&options.rank, 2) && list_has(&options.rank, 5));
    ck_assert(!list_has(&options.rank, -1) && list_has(&options.pid, 7) && !list_has(&options.pid, 8));
    ck_assert(options.stage.count == 2 && options.from == 1.5 && options.to == 2 && options.top == 9 &&
              options.exclusive);
    ck_assert_uint_eq(options.inputs.count, 3);
    ck_assert_str_eq(options.inputs.text[2], "--odd");
    options_free(&options);
}
END_TEST

START_TEST(nothing_but_an_input)
{
    ck_assert(parse("export chrome run"));
    ck_assert(is_command(options.command, "export chrome") && options.format == FORMAT_TEXT && !options.output);
    ck_assert(isnan(options.from) && isnan(options.to) && options.jobs == 0 && list_has(&options.rank, -1));
    options_free(&options);
}
END_TEST

START_TEST(short_options)
{
    static const char *const lines[] = {"info -j 3 run", "info -j3 run", "info -j=3 run", "info --jobs 3 run"};
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
        ck_assert(parse(lines[i]) && options.jobs == 3 && options.inputs.count == 1);
        options_free(&options);
    }
    ck_assert(parse("info -h") && options.help && is_command(options.command, "info"));
    options_free(&options);
}
END_TEST

START_TEST(refused)
{
    static const char *const lines[] = {"",
                                        "nonsense run",
                                        "info",
                                        "info --exclusive run",
                                        "stages --top run",
                                        "stages --top 0 run",
                                        "stages --format x run",
                                        "stages --rank 1, run",
                                        "stages --rank 2-1 run",
                                        "stages --rank , run",
                                        "stages --from -x run",
                                        "stages --from inf run",
                                        "stages --from 2 --to 2 run",
                                        "stages -x run",
                                        "stages -j run",
                                        "stages --j 2 run",
                                        "export chrome --format json run",
                                        "export run",
                                        "stages run --stage"};
    for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
        ck_assert_msg(!parse(lines[i]), "%s", lines[i]);
        options_free(&options);
    }
}
END_TEST

/* The sanitized build fails where a value is not freed. */
START_TEST(values_are_freed)
{
    static const char *const lines[] = {
        "export et --output x --output y run",
        "export chrome --output a --rank 1 --pid 2 --stage a --step 1 --cycle 2 --device 0 --stream 7 run",
        "launches --budget a --budget b --write-budget c run",
        "patterns --operator a --operator b run",
        "merge --inputs a --file-list b --output c",
        "critical-path --overlay a --overlay b run",
    };
    ck_assert(parse(lines[_i]));
    options_free(&options);
}
END_TEST

START_TEST(help_takes_words_and_no_filters)
{
    ck_assert(parse("help"));
    ck_assert_uint_eq(options.inputs.count, 0);
    options_free(&options);
    ck_assert(parse("help export chrome"));
    ck_assert_uint_eq(options.inputs.count, 2);
    options_free(&options);
    static const char *const wrong[] = {"help --rank 0 stages", "help --format json", "help -j 2", "help,stages run"};
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        ck_assert_msg(!parse(wrong[i]), "%s", wrong[i]);
        options_free(&options);
    }
}
END_TEST

START_TEST(several_questions)
{
    ck_assert(parse("timeline,kinds,breakdown run --rules hta --names short --format json"));
    ck_assert_uint_eq(options.questions, 3);
    ck_assert(is_command(options.command, "timeline") && is_command(options.question[2], "breakdown"));
    ck_assert(options.rules == RULES_HTA && options.names == NAMES_SHORT);
    options_free(&options);
    static const char *const wrong[] = {"timeline, run",
                                        "timeline,nothing run",
                                        "timeline,timeline run",
                                        "timeline,dump run",
                                        "timeline,report run",
                                        "timeline,export run",
                                        "timeline,kinds",
                                        "timeline,kinds --format csv run",
                                        "stages,info --from 1 run",
                                        "timeline,stages --rules hta run",
                                        "timeline,overlap --top 3 run",
                                        ",timeline run"};
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        ck_assert_msg(!parse(wrong[i]), "%s", wrong[i]);
        options_free(&options);
    }
    ck_assert(parse("report run --output dir"));
    ck_assert_str_eq(options.output, "dir");
    options_free(&options);
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("opts");
    tcase_add_test(tcase, everything_at_once);
    tcase_add_test(tcase, nothing_but_an_input);
    tcase_add_test(tcase, short_options);
    tcase_add_test(tcase, refused);
    tcase_add_loop_test(tcase, values_are_freed, 0, 6);
    tcase_add_test(tcase, help_takes_words_and_no_filters);
    tcase_add_test(tcase, several_questions);
    return unit_run(tcase);
}
