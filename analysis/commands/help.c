/* help.c - prints the page of a topic or a command, or the list of both.
 *
 * A word may name a topic and a command: `stages` does. Then both pages are printed, the topic first.
 */
#include "commands/help.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/command.h"
#include "commands/session.h"

static const struct help_page *find_page(const struct help_page *page, const char *name)
{
    while (page->name && strcmp(page->name, name) != 0) page++;
    return page->name ? page : NULL;
}

const char *help_topic(const char *name)
{
    const struct help_page *page = find_page(help_topics, name);
    return page ? page->text : "";
}

void help_print(const struct command *command)
{
    const struct help_page *page =
        command ? find_page(help_commands, command->name) : find_page(help_topics, "tfanalyze");
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

static void list_pages(const struct help_page *page)
{
    for (; page->name; page++) {
        if (page->question) printf("\n%s\n", page->question);
        list_page(page);
    }
}

static void list_all(void)
{
    puts("usage: tfanalyze help TOPIC\n\ntopics:");
    list_pages(help_topics);
    puts("\ncommands, by the question that they answer:");
    list_pages(help_commands);
}

static void unknown_topic(const char *name)
{
    const struct help_page *const lists[] = {help_topics, help_commands};
    const char **names = NULL;
    size_t count = 0;
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
        for (const struct help_page *page = lists[i]; page->name; page++) {
            names = mem_resize(names, count + 1, sizeof *names);
            names[count++] = page->name;
        }
    }
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
    const struct help_page *topic = name.data ? find_page(help_topics, name.data) : NULL;
    const struct help_page *command = name.data ? find_page(help_commands, name.data) : NULL;
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
