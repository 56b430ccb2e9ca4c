/* help.c - prints the page of a topic or a command, or the list of both.
 *
 * A word may name a topic and a command: `stages` does. Then both pages are printed, the topic first.
 */
#include "commands/help.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands/session.h"

static const struct help_page *find_topic(const char *name)
{
    const struct help_page *page = help_topics;
    while (page->name && strcmp(page->name, name) != 0) page++;
    return page->name ? page : NULL;
}

static const struct help_page *find_command(const char *name)
{
    size_t i = 0;
    while (i < NR_COMMANDS && strcmp(help_commands[i].name, name) != 0) i++;
    return i < NR_COMMANDS ? &help_commands[i] : NULL;
}

void help_print(enum command_id command)
{
    const struct help_page *page = command < NR_COMMANDS ? &help_commands[command] : find_topic("tfanalyze");
    if (page) fputs(page->text, stdout);
}

/* Prints a page's name and what it explains, which its first line says, in lines of at most WIDTH columns. */
static void list_page(const struct help_page *page)
{
    enum { WIDTH = 79, NAME = 18, INDENT = 2 + NAME + 2 };
    const char *says = page->text + strlen(page->name) + strlen(" - ");
    size_t column = INDENT;
    printf("  %-*s ", NAME, page->name);
    for (size_t word; (word = strcspn(says, " \n")) != 0; says += word + (says[word] == ' ')) {
        if (column > INDENT && column + word > WIDTH) {
            printf("\n%*s", INDENT - 1, "");
            column = INDENT;
        }
        printf(" %.*s", (int)word, says);
        column += word + 1;
    }
    puts("");
}

static void list_all(void)
{
    puts("usage: tfanalyze help TOPIC\n\ntopics:");
    for (const struct help_page *page = help_topics; page->name; page++) list_page(page);
    puts("\ncommands:");
    for (size_t i = 0; i < NR_COMMANDS; i++) list_page(&help_commands[i]);
}

static void unknown_topic(const char *name)
{
    const char **names = NULL;
    size_t count = 0;
    for (const struct help_page *page = help_topics; page->name; page++) {
        names = mem_resize(names, count + 1, sizeof *names);
        names[count++] = page->name;
    }
    names = mem_resize(names, count + NR_COMMANDS, sizeof *names);
    for (size_t i = 0; i < NR_COMMANDS; i++) names[count++] = help_commands[i].name;
    const char *meant = nearest(name, names, count);
    complain(NULL, "there is no topic %s%s%s; `tfanalyze help` lists all topics", name, meant ? "; did you mean " : "",
             meant ? meant : "");
    free(names);
}

void cmd_help(struct session *session)
{
    const struct strings_list *words = &session->options.inputs;
    struct text name = {0};
    for (size_t i = 0; i < words->count; i++) text_format(&name, "%s%s", i ? " " : "", words->text[i]);
    const struct help_page *topic = name.data ? find_topic(name.data) : NULL;
    const struct help_page *command = name.data ? find_command(name.data) : NULL;
    if (!name.data) {
        list_all();
    } else if (!topic && !command) {
        unknown_topic(name.data);
        session->status = 2;
    } else {
        printf("%s%s%s", topic ? topic->text : "", topic && command ? "\n\n" : "", command ? command->text : "");
    }
    text_free(&name);
}
