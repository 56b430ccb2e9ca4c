/* io_choice.h - tells which calls on files of one process the filters choose. */
#ifndef TFA_IO_CHOICE_H
#define TFA_IO_CHOICE_H

#include "ask/io/open_times.h"
#include "ask/scope.h"

struct io_scope {
    const struct selection *chosen;
    const struct process *process;
    const struct choice *choice;
    const struct attribution *attribution; /* NULL: the choice does not depend on launches */
    const struct open_times *borrowed;     /* stages and steps of the rank's other processes choose; NULL: its own */
    struct map waiting;                    /* threads that wait for batches or launch device work, by serial */
};

void io_scope_init(struct io_scope *scope, struct scope *of);
void io_scope_free(struct io_scope *scope);
/* True if an event that began on a thread at `start` is chosen. */
bool io_scope_has(const struct io_scope *scope, uint32_t thread, int64_t start);

#endif
