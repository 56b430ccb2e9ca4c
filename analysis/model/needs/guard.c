/* guard.c - poisons the tables of processes that a question does not need, for the address sanitizer.
 *
 * Without the sanitizer nothing happens. With it reading such a table ends the program, and a line names question and table.
 */
#include "model/needs/guard.h"

#include <sanitizer/asan_interface.h>
#include <stddef.h>
#include <stdio.h>

#define END(member) (offsetof(struct process, member) + sizeof((struct process *)0)->member)
static const struct table_place {
    const char *name;
    size_t from, to;
    struct needs needs;
} tables[] = {
#define TABLE(first, last, ...) {#first, offsetof(struct process, first), END(last), {__VA_ARGS__}},
#include "model/needs/tables.def"
#undef TABLE
};

/* The message names what this thread guarded last. */
static _Thread_local struct {
    const struct process *process;
    size_t count;
    struct needs needs;
    const char *question;
} guarded;

void guard_lift(const struct process *process)
{
    ASAN_UNPOISON_MEMORY_REGION(process, sizeof *process);
}

void guard_again(const struct process *process)
{
    bool is_guarded = process >= guarded.process && process < guarded.process + guarded.count;
    for (size_t i = 0; i < ARRAY_SIZE(tables) && is_guarded; i++)
        if (!needs_meet(tables[i].needs, guarded.needs))
            ASAN_POISON_MEMORY_REGION((const char *)process + tables[i].from, tables[i].to - tables[i].from);
}

void guard_tables(const struct process *process, size_t count, struct needs needs, const char *question)
{
    guarded.process = process;
    guarded.count = count;
    guarded.needs = needs;
    guarded.question = question;
    for (size_t i = 0; i < count; i++) {
        guard_lift(&process[i]);
        guard_again(&process[i]);
    }
}

#ifdef __SANITIZE_ADDRESS__
void __asan_on_error(void);
void __asan_on_error(void)
{
    size_t at = (size_t)((const char *)__asan_get_report_address() - (const char *)guarded.process);
    for (size_t k = 0; k < ARRAY_SIZE(tables) && at < guarded.count * sizeof(struct process); k++)
        if (at % sizeof(struct process) >= tables[k].from && at % sizeof(struct process) < tables[k].to)
            fprintf(stderr, "tfanalyze: `%s` reads `%s` of a process, which its needs lack\n", guarded.question,
                    tables[k].name);
}
#endif
