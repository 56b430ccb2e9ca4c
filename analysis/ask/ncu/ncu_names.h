/* ncu_names.h - finds the kernel of a trace that Nsight Compute prints under another name, and the name by which ncu's
 * filters know it.
 *
 * ncu and CUPTI demangle differently: ncu leaves namespaces away, writes parameters as (T1, T2), false as 0 or (bool)0, and
 * const on the other side of its type. What stays the same is the function and its template arguments in plain form.
 */
#ifndef TFA_NCU_NAMES_H
#define TFA_NCU_NAMES_H

#include "model/names.h"

/* Appends the function's name without namespaces, template arguments and parameters, as ncu's `--kernel-name-base function`
 * has it, and to `form` the same with its template arguments in plain form. Either may be NULL. */
void ncu_plain_name(const char *name, struct text *function, struct text *form);

/* Returns the name for people; the caller frees it. */
char *readable_name(const char *name);

enum ncu_matched { MATCHED_NOT, MATCHED_SEVERAL, MATCHED_FUNCTION, MATCHED_FORM, MATCHED_NAME, NR_MATCHED };

struct ncu_matcher {
    struct names texts;
    struct map by[NR_MATCHED]; /* the kernel's name by the number of a text */
};

/* `name`: the kernels of a trace; names may repeat. */
void ncu_matcher_init(struct ncu_matcher *matcher, const struct names *names, const uint32_t *name, size_t count);
/* Finds the kernel. MATCHED_SEVERAL: more than one kernel of the trace may be meant, and none is found. */
enum ncu_matched ncu_match(const struct ncu_matcher *matcher, const char *kernel, uint32_t *name);
void ncu_matcher_free(struct ncu_matcher *matcher);

#endif
