/* opts.c - parses the command line by the table of the commands and the rows of options.def. */
#include "base/opts.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/command.h"
#include "base/words/option_words.h"
#include "base/words/suggestions.h"
#include "base/words/torch_names.h"
#include "pattern.h"

enum { NO_COMMAND = -1 };

static const struct option {
    const char *name;
    char letter;
    const char *argument;
    enum option_type type;
    size_t place;
    uint64_t takers;
    const char *help;
    const char *const *words; /* values of a WORD */
} options_table[] = {
#define OPTION(name, letter, argument, type, field, takers, help, words)                                               \
    {name, letter, argument, type, offsetof(struct options, field), takers, help, words},
#include "options.def"
};

/* Options of older versions. */
#define GONE(name, instead) {name, instead},
static const struct {
    const char *name, *instead;
} gone[] = {
#include "options.def"
};

/* Returns why the filter has no meaning for the command, `*length` bytes long; NULL if the command accepts it. */
static const char *refusal(const char *name, const struct command *command, int *length)
{
    const char *end;
    for (const char *p = command->refuses; *p; p = end + strspn(end, "; ")) {
        size_t options = strcspn(p, ":"), at = 0, word;
        const char *why = p + options + strlen(": ");
        end = why + strcspn(why, ";");
        *length = (int)(end - why);
        for (; at < options; at += word + 1) {
            word = MIN(strcspn(p + at, " "), options - at);
            if (word == strlen(name) && strncmp(p + at, name, word) == 0) return why;
        }
    }
    return NULL;
}

bool command_takes(const struct command *command, const char *option, uint64_t takers)
{
    int length;
    if (command->takes & (HELP | SERVES)) return takers & HELP;
    if (takers == FILTERED) return !refusal(option, command, &length);
    if (takers == STAGED) return !refusal("--stage", command, &length);
    if (takers == SORTED) return command->takes & ROWS && !refusal(option, command, &length);
    return takers & (ALL | command->takes);
}

static bool knows(const struct option *option, const struct command *command)
{
    return command_takes(command, option->name, option->takers);
}

const char *options_sort_key(const struct options *options)
{
    int length;
    uint64_t takes = options->command->takes;
    bool sorts = takes & ROWS && !(takes & TORCH_TABLE) && !refusal("--sort-by", options->command, &length);
    return sorts ? options->sort.key : NULL;
}

/* ---- values ---- */

static bool parse_list(const char *value, struct list *list)
{
    char *copy = string_format("%s", value), *rest = copy, *part;
    bool good = *value != 0;
    while (good && (part = strsep(&rest, ",")) != NULL) {
        char *dash = strchr(part, '-');
        uint64_t from, to;
        if (dash) *dash = 0;
        good = tfi_whole_number(part, 0, UINT64_MAX, &from) &&
               tfi_whole_number(dash ? dash + 1 : part, 0, UINT64_MAX, &to) && from <= to;
        if (good) {
            list->item = mem_resize(list->item, list->count + 1, sizeof *list->item);
            list->item[list->count].from = from;
            list->item[list->count++].to = to;
        }
    }
    free(copy);
    return good;
}

enum rules options_rules(const struct options *options)
{
    return options->file_rules == FILE_RULES_DFANALYZER ? RULES_DFANALYZER : options->rules;
}

bool list_has(const struct list *list, int64_t value)
{
    for (size_t i = 0; i < list->count && value >= 0; i++)
        if (list->item[i].from <= (uint64_t)value && (uint64_t)value <= list->item[i].to) return true;
    return list->count == 0;
}

static void add_string(struct strings_list *list, const char *text)
{
    list->text = mem_resize(list->text, list->count + 1, sizeof *list->text);
    list->text[list->count++] = string_format("%s", text);
}

static bool set_word(const struct option *option, const char *value, int *place)
{
    size_t count = 0;
    for (; option->words[count]; count++) {
        if (strcmp(value, option->words[count]) == 0) {
            *place = (int)count;
            return true;
        }
    }
    const char *meant = nearest(value, option->words, count);
    complain(NULL, "%s takes %s, not %s%s%s%s", option->name, option->argument, value, meant ? "; did you mean " : "",
             meant ? meant : "", meant ? "?" : "");
    return false;
}

static bool set_number(const char *value, double *number)
{
    char *end;
    *number = strtod(value, &end);
    return *value && !*end && isfinite(*number);
}

/* An operator may have a longer stack than the one around it, so without a limit the time grows with the square of
 * the depth. No interpreter goes deeper by default. */
#define MOST_FRAMES 1000

/* "name,shapes,modules,stack=5" */
static bool parse_groups(const char *value, struct group_ops *groups)
{
    char *copy = string_format("%s", value), *rest = copy, *part;
    bool good = true;
    *groups = (struct group_ops){0};
    while (good && (part = strsep(&rest, ",")) != NULL) {
        bool by_stack = strncmp(part, "stack=", 6) == 0;
        good = strcmp(part, "name") == 0 || strcmp(part, "shapes") == 0 || strcmp(part, "modules") == 0 ||
               (by_stack && tfi_whole_number(part + 6, 0, UINT64_MAX, &groups->stack) && groups->stack > 0 &&
                groups->stack <= MOST_FRAMES);
        groups->shapes |= strcmp(part, "shapes") == 0;
        groups->modules |= strcmp(part, "modules") == 0;
    }
    free(copy);
    return good;
}

/* Takes torch's names for the metrics of operators too: self_cpu_time_total, self_cuda_time_total. */
static bool set_metric(const struct option *option, const char *value, int *metric)
{
    struct text plain = {0};
    text_of_any_device(&plain, value);
    size_t length = plain.data ? strlen(plain.data) : 0, tail = strlen("_time_total");
    bool is_torchs = length > tail && strncmp(plain.data, "self_", strlen("self_")) == 0 &&
                     strcmp(plain.data + length - tail, "_time_total") == 0;
    if (is_torchs) plain.data[length - tail] = 0;
    bool good = set_word(option, is_torchs ? plain.data : value, metric);
    text_free(&plain);
    return good;
}

static bool parse_limit(const char *value, int64_t *limit)
{
    uint64_t number;
    if (strcmp(value, "-1") == 0) {
        *limit = -1;
        return true;
    }
    bool good = tfi_whole_number(value, 0, UINT64_MAX, &number) && number > 0 && number <= INT64_MAX;
    *limit = good ? (int64_t)number : 0;
    return good;
}

static bool set_option(struct options *options, const struct option *option, const char *value)
{
    void *place = (char *)options + option->place;
    bool good = true;
    switch (option->type) {
    case FLAG: *(bool *)place = true; break;
    case WORD: return set_word(option, value, place);
    case SORT_KEY: /* its key stands first */
    case TEXT:
    case READS:
    case WRITES:
        free(*(char **)place);
        *(char **)place = string_format("%s", value);
        good = *value;
        break;
    case COUNT: good = tfi_whole_number(value, 0, UINT64_MAX, place) && *(uint64_t *)place > 0; break;
    case LIST: good = parse_list(value, place); break;
    case GLOB:
    case PATHS:
        add_string(place, value);
        good = *value;
        break;
    case SECONDS: good = set_number(value, place); break;
    case PERCENT: good = set_number(value, place) && *(double *)place > 0; break;
    case GROUPS: good = parse_groups(value, place); break;
    case METRIC: return set_metric(option, value, place);
    case LIMIT: good = parse_limit(value, place); break;
    }
    bool in_seconds = option->type == SECONDS && *value && value[strlen(value) - 1] == 's';
    if (!good)
        complain(NULL, "%s needs %s, not '%s'%s", option->name, option->argument, value,
                 in_seconds ? ": a number of seconds without a unit" : "");
    return good;
}

/* ---- words ---- */

/* A name may have one row for some commands and another row for the rest. */
static const struct option *find_row(const char *word, size_t length, const struct command *command)
{
    const struct option *found = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(options_table); i++) {
        const struct option *option = &options_table[i];
        bool is_short = length >= 2 && word[0] == '-' && option->letter && word[1] == option->letter;
        bool fits = !command || knows(option, command);
        if ((strlen(option->name) == length && strncmp(word, option->name, length) == 0) || is_short)
            found = !found || fits ? option : found;
    }
    return found;
}

/* Returns the row of the first question that takes it, or any row of that name; NULL: there is no such option. */
static const struct option *find_option(const struct options *options, const char *word, size_t length)
{
    const struct option *found = find_row(word, length, options->command);
    for (size_t i = 0; found && i < options->questions; i++) {
        const struct option *row = find_row(word, length, options->question[i]);
        if (knows(row, options->question[i])) return row;
    }
    return found;
}

static void unknown_option(const char *word, size_t length)
{
    const char *names[ARRAY_SIZE(options_table)], *instead = NULL;
    char *copy = mem_text(word, length);
    for (size_t i = 0; i < ARRAY_SIZE(gone); i++)
        if (strcmp(gone[i].name, copy) == 0) instead = gone[i].instead;
    for (size_t i = 0; i < ARRAY_SIZE(options_table); i++) names[i] = options_table[i].name;
    const char *meant = option_meant(copy, names, ARRAY_SIZE(names));
    if (instead) complain(NULL, "%s is gone: %s", copy, instead);
    else
        complain(NULL, "there is no option %s%s%s; --help lists all options", copy, meant ? "; did you mean " : "",
                 meant ? meant : "");
    free(copy);
}

/* A name may have rows with different values for the same field: a command knows the option if it knows one of them. */
static const struct option *known_row(const struct option *option, const struct command *command)
{
    for (size_t i = 0; i < ARRAY_SIZE(options_table); i++) {
        const struct option *row = &options_table[i];
        if (row->place == option->place && strcmp(row->name, option->name) == 0 && knows(row, command)) return row;
    }
    return NULL;
}

static bool takes_word(const struct option *option, const char *word)
{
    size_t length = strlen(word);
    for (const char *p = option->argument; *p; p += strcspn(p, "|"), p += *p == '|')
        if (strcspn(p, "|") == length && strncmp(p, word, length) == 0) return true;
    return false;
}

/* False, with a message, if a question lacks the chosen rules. */
static bool rules_exist(const struct options *options)
{
    const struct option *rules = find_row("--rules", strlen("--rules"), options->command);
    const char *word = rules_names[options->rules];
    for (size_t i = 0; i < options->questions; i++) {
        const struct option *row = known_row(rules, options->question[i]);
        if (!row || row->words != device_rules_names || takes_word(row, word)) continue;
        complain(NULL, "%s has no --rules %s; it takes %s", options->question[i]->name, word, row->argument);
        return false;
    }
    return true;
}

/* False, with a message, if torch's table lacks the chosen order. The sorted rows are cut, not those of the command. */
static bool order_exists(struct options *options)
{
    struct sort_by *sort = &options->sort;
    bool good = true;
    if (!sort->key) return true;
    sort->top = options->top;
    options->top = 0;
    for (size_t i = 0; i < options->questions && good; i++)
        good = !(options->question[i]->takes & TORCH_TABLE) || torchs_order(sort->key, &sort->torchs);
    return good;
}

/* Returns the question that does not know the option, or NULL. All questions must know an option that changes
 * the content of an answer. One is enough for options that only name and cut rows. */
static const struct command *lacking(const struct options *options, const struct option *option)
{
    bool strict = option->type == LIST || option->type == GLOB || option->type == PATHS || option->type == SECONDS ||
                  option->place == offsetof(struct options, rules) ||
                  option->place == offsetof(struct options, file_rules);
    const struct command *lacks = NULL;
    size_t know = 0;
    for (size_t i = 0; i < options->questions; i++) {
        bool good = known_row(option, options->question[i]) != NULL;
        know += good;
        lacks = good ? lacks : options->question[i];
    }
    return strict || !know ? lacks : NULL;
}

/* Takes the option at argv[*at] and its value, which may be the next word. */
static bool take_option(struct options *options, int argc, char **argv, int *at)
{
    const char *word = argv[*at], *value = NULL;
    size_t length = strcspn(word, "=");
    const struct option *option = find_option(options, word, length);
    if (!option) {
        unknown_option(word, length);
        return false;
    }
    if (word[1] != '-') value = word[2] ? word + 2 + (word[2] == '=') : NULL; /* -j4 */
    else if (word[length] == '=') value = word + length + 1;
    if (option->type == FLAG && value) {
        complain(NULL, "%s takes no value", option->name);
        return false;
    }
    if (option->type != FLAG && !value) {
        if (*at + 1 >= argc) {
            complain(NULL, "%s needs a value: %s", option->name, option->argument);
            return false;
        }
        value = argv[++*at];
    }
    const struct command *lacks = lacking(options, option);
    if (lacks) {
        int bytes;
        const char *command = lacks->name, *why = refusal(option->name, lacks, &bytes);
        if (why) {
            complain(NULL, "%s %.*s: %s has no meaning", command, bytes, why, option->name);
        } else if (knows(find_row(word, length, lacks), lacks)) {
            complain(NULL, "%s has other values for %s than for %s: run the commands one at a time", option->name,
                     command, options->command->name);
        } else {
            complain(NULL, "%s is not an option of %s; `tfanalyze %s --help` lists its options", option->name, command,
                     command);
        }
        return false;
    }
    return set_option(options, option, value);
}

static const struct command *command_by_name(const struct options *options, const char *name)
{
    const struct command *command = options->commands;
    while (command->name && strcmp(name, command->name) != 0) command++;
    return command->name ? command : NULL;
}

static void add_question(struct options *options, const struct command *command)
{
    options->question = mem_resize(options->question, options->questions + 1, sizeof *options->question);
    options->question[options->questions++] = command;
}

/* The suggestion tries the longer text first: the name may consist of two words. */
static void unknown_command(const struct options *options, const char *word, const char *longer)
{
    const char **names = NULL;
    size_t count = 0;
    for (const struct command *command = options->commands; command->name; command++) {
        names = mem_resize(names, count + 1, sizeof *names);
        names[count++] = command->name;
    }
    const char *meant = command_meant(longer, names, count);
    meant = meant ? meant : command_meant(word, names, count);
    complain(NULL, "there is no command %s%s%s; --help lists all commands", word, meant ? "; did you mean " : "",
             meant ? meant : "");
    free(names);
}

/* True if a word that names no command is an input: it names a file, or looks like a path or `rank=N:PATH`. */
static bool is_input(const char *word)
{
    return strpbrk(word, "/.=:") || access(word, F_OK) == 0;
}

/* Reads the command at argv[1], which may be two words. Returns the number of words, NO_COMMAND if it is unknown. An input in its
 * place asks for the first screen. */
static int find_command(struct options *options, int argc, char **argv)
{
    char *two = string_format("%s %s", argv[1], argc > 2 ? argv[2] : "");
    const struct command *command = command_by_name(options, two);
    int words = command ? 2 : 1;
    if (!command) command = command_by_name(options, argv[1]);
    if (!command && is_input(argv[1])) {
        for (command = options->commands; command->name && !(command->takes & FIRST_SCREEN);) command++;
        command = command->name ? command : NULL;
        words = 0;
    }
    if (command) add_question(options, command);
    else unknown_command(options, argv[1], two);
    free(two);
    return command ? words : NO_COMMAND;
}

/* Reads a list such as "timeline,kinds,overlap" into `question`; all are answered from one reading of the inputs.
 * Returns 1 (the list is one word of the command line), or NO_COMMAND after a message. */
static int find_questions(struct options *options, const char *list)
{
    char *copy = string_format("%s", list), *rest = copy, *name;
    bool good = true;
    while (good && (name = strsep(&rest, ",")) != NULL) {
        options->command = command_by_name(options, name);
        good = options->command != NULL;
        if (!good) {
            unknown_command(options, name, name);
        } else if (!(options->command->takes & TOGETHER)) {
            complain(NULL, "%s cannot be combined with other commands; run it alone", name);
            good = false;
        }
        for (size_t i = 0; good && i < options->questions; i++) {
            if (options->question[i] == options->command) {
                complain(NULL, "%s appears twice; name each command once", name);
                good = false;
            }
        }
        if (good) add_question(options, options->command);
    }
    free(copy);
    return good ? 1 : NO_COMMAND;
}

static void free_strings(struct strings_list *list)
{
    for (size_t i = 0; i < list->count; i++) free(list->text[i]);
    free(list->text);
    *list = (struct strings_list){0};
}

static bool takes_after(const struct options *options)
{
    return options->command && options->command->takes & (COMMAND_LINE | DIFF);
}

/* The words behind `--` are runs of side B for a gate, and options may follow. Without a gate `--` only ends the options. */
static void unite_sides(struct options *options)
{
    if (!(options->command->takes & DIFF) || !isnan(options->gate)) return;
    for (size_t i = 0; i < options->after.count; i++) add_string(&options->inputs, options->after.text[i]);
    free_strings(&options->after);
}

/* False, with a message, if the command has too few inputs. */
static bool has_inputs(const struct options *options)
{
    uint64_t takes = options->command->takes;
    size_t count = options->inputs.count;
    if (takes & DIFF && !isnan(options->gate)) {
        if (!count || !options->after.count)
            complain(NULL, "%s --gate needs repeated runs of both sides: A... -- B...", options->command->name);
        return count && options->after.count;
    }
    if (takes & DIFF && count != 2) {
        complain(NULL, "%s compares two inputs, A and B, and %zu %s given; a directory may hold many ranks",
                 options->command->name, count, count == 1 ? "is" : "are");
        return false;
    }
    if (!count && !(takes & HELP)) {
        complain(NULL, "%s needs %s%s", options->command->name,
                 takes & SERVES ? "a DIR that holds runs" : "an INPUT: a run directory, .tfr files",
                 takes & SERVES     ? ""
                 : takes & DFTRACER ? ", PyTorch or dftracer traces"
                                    : " or PyTorch traces");
        return false;
    }
    return true;
}

bool options_parse(struct options *options, const struct command *commands, int argc, char **argv)
{
    bool behind = false; /* `--` was there */
    int at = 1;
    *options = (struct options){.commands = commands, .by = BY_NOT_GIVEN, .gate = NAN, .from = NAN, .to = NAN};
    if (argc < 2) {
        complain(NULL, "a COMMAND is missing; --help lists all commands");
        return false;
    }
    if (argv[1][0] != '-') {
        bool is_list = strchr(argv[1], ',') && !is_input(argv[1]);
        int words = is_list ? find_questions(options, argv[1]) : find_command(options, argc, argv);
        if (words == NO_COMMAND) return false;
        options->command = options->question[0];
        at += words;
    }
    for (; at < argc; at++)
        if (!behind && strcmp(argv[at], "--") == 0) behind = true;
        else if (argv[at][0] != '-' || !argv[at][1] || (behind && isnan(options->gate)))
            add_string(behind && takes_after(options) ? &options->after : &options->inputs, argv[at]);
        else if (!take_option(options, argc, argv, &at)) return false;
    if (options->help || options->version) return true;
    if (!options->command) {
        complain(NULL, "a COMMAND is missing before the options; --help lists all commands");
        return false;
    }
    unite_sides(options);
    if (!has_inputs(options)) return false;
    if (options->questions > 1 && options->format == FORMAT_CSV) {
        complain(NULL, "--format csv can hold one table only; run one command at a time, or use --format json");
        return false;
    }
    if (!rules_exist(options)) return false;
    if (options->from >= options->to) { /* false if one of them is NAN: not given */
        complain(NULL, "--from %g is not before --to %g", options->from, options->to);
        return false;
    }
    return order_exists(options);
}

static void free_list(struct list *list)
{
    free(list->item);
    *list = (struct list){0};
}

static void free_text(char **text)
{
    free(*text);
    *text = NULL;
}

void options_free(struct options *options)
{
    for (size_t i = 0; i < ARRAY_SIZE(options_table); i++) {
        void *place = (char *)options + options_table[i].place;
        switch (options_table[i].type) { /* several rows may have the same place */
        case TEXT:
        case READS:
        case WRITES: free_text(place); break;
        case LIST: free_list(place); break;
        case GLOB:
        case PATHS: free_strings(place); break;
        case SORT_KEY: free_text(&((struct sort_by *)place)->key); break;
        default: break;
        }
    }
    free_strings(&options->after);
    free(options->question);
    *options = (struct options){0};
}
