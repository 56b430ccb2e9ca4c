/* guard.h - in the sanitizer build, lets a question fail that reads a table of a process which its needs lack.
 *
 * Such a table may be there, since another question of the same run needs it: then the answer would depend on that one.
 */
#ifndef TFA_GUARD_H
#define TFA_GUARD_H

#include "model/model.h"

/* Lets only these needs of the processes be read from now on; the message of a failure names the question. */
void guard_tables(const struct process *process, size_t count, struct needs needs, const char *question);
/* Let all tables of a process be read until the second call, by what serves all questions. */
void guard_lift(const struct process *process);
void guard_again(const struct process *process);

#endif
