/* tools.c - the tools that `tfanalyze mcp` offers, and the command line that a call of one of them means.
 *
 * Commands and options come from commands.def and options.def. A command is offered if it prints rows, stacks or the first
 * screen, and writes no files of its own names; an option is offered unless its value is a file to write. What a client
 * gives becomes one word of a command line each, behind the name of an option: it can name no other option.
 */
#include "commands/mcp/tools.h"

#include <stdlib.h>
#include <string.h>

#include "base/command.h"
#include "base/words/option_words.h"

#define ASK "ask"

enum { LONGEST_NAME = 100 }; /* of what is compared with the names that there are */

static const struct option {
    const char *name, *argument, *meaning;
    enum option_type type;
    uint64_t takers;
} options_table[] = {
#define OPTION(name, letter, argument, type, field, takers, meaning, words) {name, argument, meaning, type, takers},
#include "options.def"
};

/* Lengths of what a client gave, in messages. */
#define SHOWN "%.200s"

/* ---- what is offered ---- */

static bool is_offered(const struct command *command)
{
    return command->takes & HELP || (command->takes & ANSWER && command->takes & (ROWS | STACK_LINES | FIRST_SCREEN));
}

static const struct command *offered_by_name(const struct command *commands, const char *name)
{
    for (const struct command *c = commands; c->name; c++)
        if (is_offered(c) && strcmp(c->name, name) == 0) return c;
    return NULL;
}

static const struct command *own_tool(const struct command *commands, const char *name)
{
    const struct command *command = offered_by_name(commands, name);
    return command && command->takes & TOOL ? command : NULL;
}

bool tools_have(const struct command *commands, const char *tool)
{
    return strcmp(tool, ASK) == 0 || own_tool(commands, tool);
}

/* Options that most commands take: they are explained once. */
static bool is_common(const struct option *option)
{
    return option->takers & (ALL | FILTERED | STAGED | SORTED) || option->type == WRITES;
}

static bool is_listed(const struct option *option)
{
    static const char *const rare[] = {"--jobs",  "--pid",         "--communication",
                                       "--cycle", "--stage-names", "--graph-capture"};
    for (size_t i = 0; i < ARRAY_SIZE(rare); i++)
        if (strcmp(option->name, rare[i]) == 0) return false;
    return option->type != WRITES && !(option->takers & HELP);
}

/* ---- the list of tools ---- */

static json_t *values_of(const char *argument)
{
    json_t *values = json_array();
    for (const char *p = argument; *p; p += strcspn(p, "|"), p += *p == '|')
        json_array_append_new(values, json_stringn(p, strcspn(p, "|")));
    return values;
}

static json_t *texts(void)
{
    return json_pack("{s:s, s:{s:s}}", "type", "array", "items", "type", "string");
}

static json_t *schema_of(const struct option *option, bool explains)
{
    json_t *schema;
    switch (option->type) {
    case FLAG: schema = json_pack("{s:s}", "type", "boolean"); break;
    case COUNT:
    case LIMIT: schema = json_pack("{s:s}", "type", "integer"); break;
    case SECONDS:
    case PERCENT: schema = json_pack("{s:s}", "type", "number"); break;
    case GLOB:
    case PATHS: schema = texts(); break;
    case WORD: schema = json_pack("{s:s, s:o}", "type", "string", "enum", values_of(option->argument)); break;
    default: schema = json_pack("{s:s}", "type", "string"); break;
    }
    if (explains) json_object_set_new(schema, "description", json_string(option->meaning));
    return schema;
}

static json_t *tool_of(const char *name, const char *says, json_t *properties, json_t *required)
{
    json_t *schema = json_pack("{s:s, s:o}", "type", "object", "properties", properties);
    if (required) json_object_set_new(schema, "required", required);
    return json_pack("{s:s, s:s, s:o, s:{s:b, s:b}}", "name", name, "description", says, "inputSchema", schema,
                     "annotations", "readOnlyHint", 1, "openWorldHint", 0);
}

static json_t *own_tool_of(const struct command *command)
{
    json_t *properties = json_pack("{s:o, s:{s:s}}", "input", texts(), "offset", "type", "integer");
    for (size_t i = 0; i < ARRAY_SIZE(options_table); i++) {
        const struct option *o = &options_table[i];
        if (!is_listed(o) || !command_takes(command, o->name, o->takers)) continue;
        json_object_set_new(properties, o->name + 2, schema_of(o, !is_common(o) && o->takers != ROWS));
    }
    return tool_of(command->name, command->answers, properties, NULL);
}

static json_t *ask_tool(const struct command *commands, const struct served *served)
{
    json_t *names = json_array();
    json_t *properties = json_object();
    struct text says = {0}, input = {0};
    text_puts(&says, "Any other question. `command` is one of:");
    for (const struct command *c = commands; c->name; c++) {
        if (!is_offered(c) || c->takes & TOOL) continue;
        json_array_append_new(names, json_string(c->name));
        text_format(&says, "\n%s: %s", c->name, c->answers);
    }
    text_puts(
        &says,
        "\nIts own options are further properties; command `help` with a `topic` (a command, or `agents`) explains.");
    text_puts(&input, "the runs or traces, also rank=N:PATH, in: ");
    served_names(served, &input);
    text_puts(&input, "; may be left out if there is one run");
    json_object_set_new(properties, "command", json_pack("{s:s, s:o}", "type", "string", "enum", names));
    json_object_set_new(properties, "topic", json_pack("{s:s}", "type", "string"));
    json_t *paths = texts();
    json_object_set_new(paths, "description", json_string(input.data));
    json_object_set_new(properties, "input", paths);
    json_object_set_new(
        properties, "offset",
        json_pack("{s:s, s:s}", "type", "integer", "description", "first line to return of an answer that was cut"));
    for (size_t i = 0; i < ARRAY_SIZE(options_table); i++)
        if (is_listed(&options_table[i]) && (is_common(&options_table[i]) || options_table[i].takers == ROWS))
            json_object_set_new(properties, options_table[i].name + 2, schema_of(&options_table[i], true));
    json_t *tool = tool_of(ASK, says.data, properties, json_pack("[s]", "command"));
    text_free(&says);
    text_free(&input);
    return tool;
}

json_t *tools_list(const struct command *commands, const struct served *served)
{
    json_t *list = json_array();
    for (const struct command *c = commands; c->name; c++)
        if (is_offered(c) && c->takes & TOOL) json_array_append_new(list, own_tool_of(c));
    json_array_append_new(list, ask_tool(commands, served));
    return list;
}

/* ---- the command line of a call ---- */

/* A call has this while its words are made. */
struct making {
    const struct served *served;
    const struct command *command;
    const struct option *option; /* the current one */
    struct words *words;
    struct text *why;
};

static void words_take(struct words *words, char *word)
{
    words->word = mem_resize(words->word, words->count + 2, sizeof *words->word);
    words->word[words->count++] = word;
    words->word[words->count] = NULL;
}

void words_free(struct words *words)
{
    for (size_t i = 0; i < words->count; i++) free(words->word[i]);
    free(words->word);
    *words = (struct words){0};
}

/* Appends a text, a number or `true` as the command line has it. Returns false for anything else. */
static bool text_of_value(struct text *to, const json_t *value)
{
    if (json_is_string(value)) text_puts(to, json_string_value(value));
    else if (json_is_integer(value)) text_format(to, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value)) text_format(to, "%.17g", json_real_value(value));
    else return false;
    return true;
}

static bool refuse_value(struct making *m)
{
    if (!m->why->length)
        text_format(m->why, "%s takes %s", m->option->name + 2,
                    m->option->argument ? m->option->argument : "true or false");
    return false;
}

static bool put_option(struct making *m, const char *value)
{
    bool is_path = m->option->type == READS || m->option->type == PATHS;
    char *path = is_path ? served_path(m->served, value, m->why) : NULL;
    if (is_path && !path) return false;
    words_take(m->words, string_format("%s=%s", m->option->name, is_path ? path : value));
    free(path);
    return true;
}

/* A list is several options where an option may be repeated, else a value with commas. */
static bool put_values(struct making *m, const json_t *values)
{
    bool repeats = m->option->type == GLOB || m->option->type == PATHS, good = true;
    struct text joined = {0};
    for (size_t i = 0; good && i < json_array_size(values); i++) {
        text_puts(&joined, i && !repeats ? "," : "");
        good = text_of_value(&joined, json_array_get(values, i)) || refuse_value(m);
        if (!good || !repeats) continue;
        good = put_option(m, joined.data ? joined.data : "");
        joined.length = 0;
    }
    if (good && !repeats) good = put_option(m, joined.data ? joined.data : "");
    text_free(&joined);
    return good;
}

static bool put_value(struct making *m, const json_t *value)
{
    struct text text = {0};
    if (json_is_null(value)) return true;
    if (m->option->type == FLAG) {
        if (json_is_true(value)) words_take(m->words, string_format("%s", m->option->name));
        return json_is_boolean(value) || refuse_value(m);
    }
    if (json_is_array(value)) return put_values(m, value);
    bool good = text_of_value(&text, value) ? put_option(m, text.data ? text.data : "") : refuse_value(m);
    text_free(&text);
    return good;
}

static bool is_named(const struct option *option, const char *key)
{
    const char *name = option->name + 2;
    key += strncmp(key, "--", 2) == 0 ? 2 : 0;
    for (; *name && (*name == *key || (*name == '-' && *key == '_')); name++) key++;
    return !*name && !*key;
}

/* Returns the row of an option that the command takes; NULL with a message: there is none, or it writes. */
static const struct option *option_by_key(struct making *m, const char *key)
{
    const char *names[ARRAY_SIZE(options_table)];
    size_t count = 0;
    for (size_t i = 0; i < ARRAY_SIZE(options_table); i++) {
        const struct option *o = &options_table[i];
        if (!command_takes(m->command, o->name, o->takers)) continue;
        if (o->type != WRITES && is_named(o, key)) return o;
        if (is_named(o, key)) {
            text_format(m->why, "%s writes a file, and this server only reads", o->name);
            return NULL;
        }
        if (o->type != WRITES) names[count++] = o->name + 2;
    }
    const char *meant = strlen(key) < LONGEST_NAME ? nearest(key, names, count) : NULL;
    text_format(m->why, "%s has no option " SHOWN "%s%s%s; it takes:", m->command->name, key,
                meant ? "; did you mean " : "", meant ? meant : "", meant ? "?" : "");
    for (size_t i = 0; i < count; i++) text_format(m->why, "%s %s", i ? "," : "", names[i]);
    return NULL;
}

static bool put_input(struct making *m, const char *input)
{
    size_t digits = strncmp(input, "rank=", 5) == 0 ? strspn(input + 5, "0123456789") : 0;
    size_t prefix = digits && input[5 + digits] == ':' ? 5 + digits + 1 : 0;
    char *path = served_path(m->served, input + prefix, m->why);
    if (!path) return false;
    words_take(m->words, string_format("%.*s%s", (int)prefix, input, path));
    free(path);
    return true;
}

/* Puts paths, a text or a list of texts. */
static bool put_paths(struct making *m, const json_t *paths, const char *name)
{
    bool good = json_is_string(paths) || json_is_array(paths) || json_is_null(paths) || !paths;
    if (json_is_string(paths)) return put_input(m, json_string_value(paths));
    for (size_t i = 0; good && i < json_array_size(paths); i++) {
        const char *path = json_string_value(json_array_get(paths, i));
        good = path != NULL;
        if (path && !put_input(m, path)) return false;
    }
    if (!good) text_format(m->why, "%s takes a list of paths", name);
    return good;
}

static bool put_inputs(struct making *m, const json_t *input)
{
    if (json_is_string(input) || json_array_size(input) || (input && !json_is_array(input) && !json_is_null(input)))
        return put_paths(m, input, "input");
    const char *run = served_run(m->served, m->why);
    if (run) words_take(m->words, string_format("%s", run));
    return run != NULL;
}

/* Puts what stands behind `--`: the topic of help, or the command line that a question is about. */
static bool put_rest(struct making *m, const json_t *rest, const char *name)
{
    bool good = !rest || json_is_null(rest) || json_is_string(rest) || json_is_array(rest);
    words_take(m->words, string_format("--"));
    if (json_is_string(rest)) words_take(m->words, string_format("%s", json_string_value(rest)));
    for (size_t i = 0; good && i < json_array_size(rest); i++) {
        const char *word = json_string_value(json_array_get(rest, i));
        good = word != NULL;
        if (word) words_take(m->words, string_format("%s", word));
    }
    if (!good) text_format(m->why, "%s takes texts", name);
    return good;
}

static const struct command *command_of_call(const struct command *commands, const char *tool, const json_t *arguments,
                                             struct text *why)
{
    const char *names[64],
        *name = strcmp(tool, ASK) == 0 ? json_string_value(json_object_get(arguments, "command")) : tool;
    const struct command *command = name ? offered_by_name(commands, name) : NULL;
    size_t count = 0;
    if (command) return command;
    for (const struct command *c = commands; c->name && count < ARRAY_SIZE(names); c++)
        if (is_offered(c)) names[count++] = c->name;
    const char *meant = name && strlen(name) < LONGEST_NAME ? nearest(name, names, count) : NULL;
    if (name)
        text_format(why, "there is no command " SHOWN " here%s%s%s; ", name, meant ? "; did you mean " : "",
                    meant ? meant : "", meant ? "?" : "");
    text_puts(why, "command is one of:");
    for (size_t i = 0; i < count; i++) text_format(why, "%s %s", i ? "," : "", names[i]);
    return NULL;
}

static bool is_special(const struct command *command, const char *tool, const char *key)
{
    return strcmp(key, "input") == 0 || strcmp(key, "offset") == 0 ||
           (strcmp(tool, ASK) == 0 && strcmp(key, "command") == 0) ||
           (command->takes & HELP && strcmp(key, "topic") == 0) ||
           (command->takes & COMMAND_LINE && strcmp(key, "command_line") == 0) ||
           (command->takes & DIFF && strcmp(key, "against") == 0);
}

static bool offset_of(const json_t *arguments, size_t *offset, struct text *why)
{
    const json_t *given = json_object_get(arguments, "offset");
    json_int_t number = json_is_integer(given) ? json_integer_value(given) : -1;
    *offset = number > 0 ? (size_t)number : 0;
    if (number >= 0 || !given || json_is_null(given)) return true;
    text_puts(why, "offset takes the number of a line, in JSON of a row, counted from 0");
    return false;
}

bool tools_words(const struct command *commands, const struct served *served, const char *tool, const json_t *arguments,
                 struct words *words, size_t *offset, struct text *why)
{
    struct making m = {.served = served, .words = words, .why = why};
    m.command = command_of_call(commands, tool, arguments, why);
    if (!m.command || !offset_of(arguments, offset, why)) return false;
    words_take(words, string_format("tfanalyze"));
    words_take(words, string_format("%s", m.command->name));
    for (void *at = json_object_iter((json_t *)arguments); at; at = json_object_iter_next((json_t *)arguments, at)) {
        if (is_special(m.command, tool, json_object_iter_key(at))) continue;
        m.option = option_by_key(&m, json_object_iter_key(at));
        if (!m.option || !put_value(&m, json_object_iter_value(at))) return false;
    }
    if (m.command->takes & HELP) return put_rest(&m, json_object_get(arguments, "topic"), "topic");
    if (!put_inputs(&m, json_object_get(arguments, "input"))) return false;
    if (m.command->takes & DIFF) { /* the other side of repeated runs */
        const json_t *against = json_object_get(arguments, "against");
        if (against) words_take(words, string_format("--"));
        return put_paths(&m, against, "against");
    }
    return !(m.command->takes & COMMAND_LINE) ||
           put_rest(&m, json_object_get(arguments, "command_line"), "command_line");
}
