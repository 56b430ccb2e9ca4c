/* flames.h - writes times by call stack for flame graphs: as collapsed lines, and in speedscope's format. */
#ifndef TFA_WRITE_FLAMES_H
#define TFA_WRITE_FLAMES_H

#include "ask/ops/op_flames.h"
#include "write/out.h"

/* Writes one line per stack of all processes together: its frames, the outermost first, joined with semicolons, a blank,
 * and whole microseconds. Blanks and semicolons in frames become underscores, as in torch's export_stacks. A stack below
 * a microsecond has no line. Returns the number of lines. */
size_t flames_collapsed(struct out *out, const struct selection *chosen, const struct flames *flames);
/* Writes a file of speedscope, with a profile in nanoseconds for each process. `metric` describes the times. */
void flames_speedscope(struct out *out, const struct selection *chosen, const struct flames *flames,
                       const char *metric);

#endif
